"""Requests to several workers, without HTTP; tests/proxy/workers/test_merged_api.py has real workers."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams

from proxy.admin.http import application
from proxy.admin.http.application import ROUTERS
from proxy.admin.http.problems import Refused
from proxy.admin.http.routes import common
from proxy.admin.http.routes.common import RequestOperations
from proxy.operations.failures import Failure, FailureKind, OperationFailed, WorkerOutcome
from proxy.operations.workers import Workers
from tests.proxy.workers.fakes import FakeSupervisor

pytestmark = pytest.mark.anyio


async def prepare() -> None:
    pass


async def operations(query: str, workers: int = 3) -> RequestOperations:
    """Return the operations of a request to worker 0 with this query."""
    group = Workers(Counter())
    if workers > 1:
        group.join(FakeSupervisor(workers).workers[0], prepare)
    services = SimpleNamespace(workers=group, peers=SimpleNamespace(configured=False))
    app = SimpleNamespace(state=SimpleNamespace(services=services))
    request: Any = SimpleNamespace(app=app, query_params=QueryParams(query), state=SimpleNamespace())
    return await common._operations(request)


def test_every_route_of_the_api_can_be_limited_to_one_worker() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    api = [route for route in routes if route.path.startswith("/v1")]
    assert len(api) > 30
    for route in api:
        assert any(dependency.call is common._operations for dependency in route.dependant.dependencies), route.path


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("worker=3", 404),
        ("worker=" + "1" * 5000, 404),
        ("worker=", 422),
        ("worker=-1", 422),
        ("worker=1e0", 422),
        ("worker=%D9%A1", 422),
    ],
)
async def test_unknown_worker_is_refused(query: str, status: int) -> None:
    with pytest.raises(Refused) as refused:
        await operations(query)
    assert refused.value.status == status
    # A single worker has no such parameter.
    assert (await operations(query, workers=1)).worker is None


@pytest.mark.parametrize(
    ("query", "number", "located"),
    [("", "1:17", (1, 17)), ("worker=1", "17", (1, 17)), ("worker=1", "1:17", (1, 17))],
)
async def test_connection_is_located_by_worker_and_number(
    query: str, number: str, located: tuple[int | None, int]
) -> None:
    assert (await operations(query)).locate(number) == located
    assert (await operations("", workers=1)).locate("17") == (None, 17)


@pytest.mark.parametrize(
    ("query", "number", "workers", "status"),
    [
        ("", "17", 3, 404),
        ("", "7:17", 3, 404),
        ("worker=2", "1:17", 3, 404),
        ("", f"1:{2**53}", 3, 422),
        ("", "0:17", 1, 422),
        ("", str(2**53), 1, 422),
    ],
)
async def test_connection_that_cannot_be_located_is_refused(query: str, number: str, workers: int, status: int) -> None:
    request = await operations(query, workers)
    with pytest.raises(Refused) as refused:
        request.locate(number)
    assert refused.value.status == status


async def test_failed_operation_is_a_problem_with_the_status_of_each_worker() -> None:
    failure = Failure(FailureKind.CONFLICT, "not valid", [("configuration", "a: b")])
    error = OperationFailed(failure, [2], [WorkerOutcome(0, None), WorkerOutcome(1, failure)])
    request: Any = SimpleNamespace(url=SimpleNamespace(path="/v1/thing"))
    response = await application._failed(request, error)
    assert response.status_code == 409
    assert orjson.loads(response.body) == {
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "detail": "not valid",
        "instance": "/v1/thing",
        "faults": [{"where": "configuration", "detail": "a: b"}],
        "missing_workers": [2],
        "workers": [{"worker": 0, "status": 200}, {"worker": 1, "status": 409, "detail": "not valid"}],
    }


async def test_refused_stream_can_be_retried_later() -> None:
    request: Any = SimpleNamespace(url=SimpleNamespace(path="/v1/tap"))
    response = await application._failed(request, OperationFailed(Failure(FailureKind.TOO_MANY, "too many")))
    assert (response.status_code, response.headers["retry-after"]) == (429, "5")
