"""Routes of health: probes for load balancers, which need no role, and changes by operators."""

from fastapi import APIRouter, Request, Response

from proxy.admin.http.routes.common import Operations, Route, Services
from proxy.core.health import PATHS, Status
from proxy.operations.replica_state import ForcedFailure, ReplicaState, StateChange, change_state
from proxy.operations.values import Answer

probes = APIRouter(tags=["health"])
router = APIRouter(prefix="/v1", tags=["health", "operations"], route_class=Route)


class CheckAnswer(Answer):
    """The result of one check."""

    status: Status
    reason: str


class HealthAnswer(Answer):
    """The replica's health; the response is 503 if the status is fail."""

    status: Status
    checks: dict[str, CheckAnswer]


_DEFAULT_FAILURE = ForcedFailure()


def _add(path: str, summary: str) -> None:
    async def probe(request: Request, services: Services) -> Response:
        report = services.health.report(request.url.path)
        return Response(report.json(), report.http_status, media_type="application/json")

    probes.add_api_route(
        path,
        probe,
        name=path[1:],
        summary=summary,
        response_model=HealthAnswer,
        responses={503: {"model": HealthAnswer, "description": "Do not send clients here"}},
        methods=["GET"],
    )


for _path, _summary in zip(
    PATHS,
    (
        "Whether the replica is healthy: listeners, backend, forced failures",
        "Whether the replica is ready for clients: healthy, and not draining",
        "Whether the process is alive",
    ),
    strict=True,
):
    _add(_path, _summary)


async def _change(operations: Operations, change: StateChange) -> ReplicaState:
    merged = await operations.gather(change_state, change)
    return merged.mark(merged.value.single)


@router.post("/health/fail", summary="Force health to fail, so that load balancers send clients elsewhere")
async def fail_health(operations: Operations, failure: ForcedFailure = _DEFAULT_FAILURE) -> ReplicaState:
    return await _change(operations, StateChange("fail", failure.reason))


@router.post("/health/pass", summary="Undo /v1/health/fail")
async def pass_health(operations: Operations) -> ReplicaState:
    return await _change(operations, StateChange("pass"))


@router.post("/drain", summary="Send clients elsewhere: GO_AWAY, GOAWAY, readiness fails; the replica keeps serving")
async def drain(operations: Operations) -> ReplicaState:
    return await _change(operations, StateChange("drain"))


@router.post("/resume", summary="Undo /v1/drain")
async def resume(operations: Operations) -> ReplicaState:
    return await _change(operations, StateChange("resume"))
