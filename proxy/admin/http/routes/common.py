"""Shared by all routes: operations at the worker that a request names, pages of lists, names in paths."""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Annotated, Any, TypeVar, get_args, get_origin

from fastapi import Depends, Path, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from proxy.admin.http.names_in_paths import restored
from proxy.admin.http.problems import Refused
from proxy.operations.failures import FailureKind, OperationFailed
from proxy.operations.operation import MergeableSnapshot, Operation
from proxy.operations.services import AdminServices
from proxy.operations.workers import Merged

_Parameters = TypeVar("_Parameters")
_Snapshot = TypeVar("_Snapshot")


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Yield the query parameters of a route and its dependencies: their names, and whether they may be repeated."""
    for field in dependant.query_params:
        yield field.alias, _is_list(field.field_info.annotation)
    for dependency in dependant.dependencies:
        yield from _parameters(dependency)


def _is_list(annotation: object) -> bool:
    """Return whether a type is a list, or may be one."""
    return any(get_origin(part) is list for part in (annotation, *get_args(annotation)))


# Operations whose snapshots are merged over all replicas.
FEDERATED = frozenset(
    (
        *("brokers.list", "clients.get", "clients.list", "connections.closed", "connections.list"),
        *("events.protocol_errors", "events.writes", "groups.consumer", "groups.consumers", "groups.producer"),
        *("groups.producers", "groups.protocols", "live.figures", "receipt_handles.list", "traffic.history"),
    )
)
# The parameter that names a worker, which only several workers have, and faults in the refusal of a request.
_WORKER = "worker"
_MORE_THAN_ONE = "it has one value, and was given more than once"
_MAX_FAULTS = 20
# Digits of a worker's number.
_MAX_DIGITS = 5


class Route(APIRoute):
    """A route that refuses unknown query parameters, and several values of those that have one.

    Its response leaves out fields that are not set: those that only several workers have.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **{**options, "response_model_exclude_unset": True})

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether the route matches, and the parameters of its path."""
        match, found = super().matches(scope)
        return match, {**found, "path_params": restored(found["path_params"])} if "path_params" in found else found

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests."""
        handle = super().get_route_handler()
        repeatable = dict(_parameters(self.dependant))

        async def check_and_handle(request: Request) -> Response:
            several_workers = _services(request).workers.several
            known = {**repeatable, _WORKER: False} if several_workers else repeatable
            faults = [
                (f"query {name[:80]}", _MORE_THAN_ONE if name in known else "there is no such parameter")
                for name, count in sorted(Counter(name for name, _ in request.query_params.multi_items()).items())
                if name not in known or (count > 1 and not known[name])
            ]
            if faults:
                raise Refused(422, INVALID_REQUEST, faults=faults[:_MAX_FAULTS])
            return await handle(request)

        return check_and_handle


class RequestOperations:
    """Runs operations for one request: at every worker, or at the one that its query names."""

    def __init__(self, services: AdminServices, worker: int | None, own: bool = True) -> None:
        self.services = services
        self.worker = worker
        # Whether the request is about this replica only.
        self.own = own

    async def gather(
        self,
        operation: Operation[Any, _Parameters, MergeableSnapshot],
        parameters: _Parameters | Callable[[int], _Parameters],
    ) -> Merged[MergeableSnapshot]:
        """Run an operation at all workers and merge their snapshots; see `Workers.gather`.

        Operations of `FEDERATED` run at all replicas.
        """
        workers = self.services.workers
        if self.own or operation.name not in FEDERATED or callable(parameters):
            return await workers.gather(operation, parameters, self.worker)
        found, missing = await self.services.peers.gather(operation, parameters)
        snapshots = [peer.snapshot for peer in found]
        try:
            here = await workers.gather(operation, parameters)
        except OperationFailed as error:
            if error.failure.kind is not FailureKind.NOT_FOUND or not snapshots:
                raise
            here = Merged(snapshots.pop(0), tuple(error.missing_workers))
        value = type(here.value).merge([here.value, *snapshots]) if snapshots else here.value
        return Merged(value, here.missing, tuple(missing))

    async def run(
        self, operation: Operation[Any, _Parameters, _Snapshot], parameters: _Parameters, worker: int | None = None
    ) -> _Snapshot:
        """Run an operation at one worker: the one that the request names, or else `worker`, or else this one."""
        return await self.services.workers.run(operation, parameters, worker if self.worker is None else self.worker)

    def locate(self, connection: str) -> tuple[int | None, int]:
        """Return worker and number of a connection. Raises Refused."""
        workers = self.services.workers
        worker, colon, number = connection.rpartition(":")
        if int(number) >= _MAX_NUMBER or (colon and not workers.several):
            raise Refused(422, INVALID_REQUEST, faults=[("path number", "the number of a connection")])
        if not workers.several:
            return None, int(number)
        if not colon:
            if self.worker is None:
                detail = f"no connection has the number {number}: there are several workers, as in 0:{number}"
                raise Refused(404, detail)
            return self.worker, int(number)
        holder = _worker(worker, workers.numbers)
        if self.worker not in (None, holder):
            raise Refused(404, f"connection {connection} does not belong to worker {self.worker}")
        return holder, int(number)


# Above it, JSON numbers are not exact in all languages.
_MAX_NUMBER = 2**53
INVALID_REQUEST = "the request is not valid"


def _services(request: Request) -> AdminServices:
    services: AdminServices = request.app.state.services
    return services


async def _operations(request: Request) -> RequestOperations:
    services = _services(request)
    worker = None
    # Without other workers the parameter does not exist.
    text = request.query_params.get(_WORKER) if services.workers.several else None
    if text is not None:
        if not (text.isascii() and text.isdecimal()):
            raise Refused(422, INVALID_REQUEST, faults=[("query worker", "a worker's number, from 0")])
        worker = _worker(text, services.workers.numbers)
    state = request.state
    caller = getattr(state, "caller", None)
    from_peer = caller is not None and caller.peer
    own = not services.peers.configured or worker is not None or from_peer or getattr(state, "own", False)
    return RequestOperations(services, worker, own)


def _worker(text: str, workers: range) -> int:
    """Return the worker with this number. Raises Refused."""
    if len(text) > _MAX_DIGITS or int(text) not in workers:
        raise Refused(404, f"there is no worker {text[:_MAX_DIGITS]}: they are 0 to {workers[-1]}")
    return int(text)


Operations = Annotated[RequestOperations, Depends(_operations)]
Services = Annotated[AdminServices, Depends(_services)]
Limit = Annotated[int, Query(ge=1, le=1000, description="items of a page")]
Cursor = Annotated[str | None, Query(pattern=r"^[A-Za-z0-9_-]{1,2000}$", description="`next` of the previous page")]
GroupName = Annotated[str, Path(pattern=r"^[%|a-zA-Z0-9_-]{1,255}$", examples=["orders-billing"])]
TopicName = Annotated[str, Path(pattern=r"^[%|a-zA-Z0-9_-]{1,255}$", examples=["orders"])]
TopicFilter = Annotated[str | None, Query(pattern=r"^[%|a-zA-Z0-9_-]{1,255}$", description="only this topic")]
GroupFilter = Annotated[str | None, Query(pattern=r"^[%|a-zA-Z0-9_-]{1,255}$", description="only this group")]
ClientId = Annotated[str, Path(min_length=1, max_length=512, examples=["192.0.2.7@4711"])]
Filter = Annotated[str | None, Query(max_length=512)]
