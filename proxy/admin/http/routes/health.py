"""Health: asked by load balancers without a role, forced by operators."""

from fastapi import APIRouter, Request, Response

from proxy.admin.http.routes.common import Replica
from proxy.core.health import PATHS, Health, Status
from proxy.operations.values import Answer, Question, Text

probes = APIRouter(tags=["health"])
router = APIRouter(prefix="/v1", tags=["health", "operations"])


class CheckAnswer(Answer):
    """One thing looked at."""

    status: Status
    reason: str


class HealthAnswer(Answer):
    """How the replica is; 503 where the status is fail."""

    status: Status
    checks: dict[str, CheckAnswer]


class ReplicaState(Answer):
    """What operators have done to the replica, and what load balancers are told."""

    ready: bool
    draining: bool
    forced_failure: str | None


class Failure(Question):
    """Why health shall fail."""

    reason: Text = "an operator wants it so"


_UNSAID = Failure()


def _add(path: str, text: str) -> None:
    async def probe(request: Request, replica: Replica) -> Response:
        report = replica.admin.health.report(request.url.path)
        return Response(report.json(), report.http_status, media_type="application/json")

    probes.add_api_route(
        path,
        probe,
        name=path[1:],
        summary=text,
        response_model=HealthAnswer,
        responses={503: {"model": HealthAnswer, "description": "Do not send clients here"}},
        methods=["GET"],
    )


for _path, _text in zip(
    PATHS,
    (
        "Whether the replica is well: listeners, backend, what operators force",
        "Whether clients may be sent here: the same, and not draining",
        "Whether the process lives",
    ),
    strict=True,
):
    _add(_path, _text)


@router.post("/health/fail", summary="Let health fail, so that load balancers send clients elsewhere")
async def fail_health(replica: Replica, failure: Failure = _UNSAID) -> ReplicaState:
    replica.admin.health.forced = failure.reason
    return await _told(replica)


@router.post("/health/pass", summary="Undo /v1/health/fail")
async def pass_health(replica: Replica) -> ReplicaState:
    replica.admin.health.forced = None
    return await _told(replica)


@router.post("/drain", summary="Send clients elsewhere: GO_AWAY, GOAWAY, readiness fails; the replica stays")
async def drain(replica: Replica) -> ReplicaState:
    replica.start_drain()
    return await _told(replica)


@router.post("/resume", summary="Undo /v1/drain")
async def resume(replica: Replica) -> ReplicaState:
    replica.stop_drain()
    return await _told(replica)


async def _told(replica: Replica) -> ReplicaState:
    """The state, once those are told of it who have asked for health by gRPC."""
    health: Health = replica.admin.health
    await replica.grpc.set_serving(health.forced is None and not replica.core.drain.announced)
    return ReplicaState(
        ready=health.report("/readyz").ok, draining=replica.core.drain.draining, forced_failure=health.forced
    )
