"""The Admin service: every rpc with its handler, role and audited fields."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from grpc_gateway.clients.rpc import peer_of
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from proxy.admin.access import BadCredentials, Caller, Gatekeeping, Role, may_read_contents
from proxy.admin.grpc import client_tools, messages, progress, replica, subscriptions, topics
from proxy.admin.grpc.errors import Denied, is_unexpected, status_of
from proxy.admin.grpc.sending import Sender
from proxy.auth.admin_users import TooManyLogins
from proxy.operations import event_log
from proxy.operations.audit import Write
from proxy.operations.clients import find_holders
from proxy.operations.failures import OperationFailed
from proxy.operations.operation import operation
from proxy.operations.services import AdminServices

_log = logging.getLogger("gantry.admin")

SERVICE = pb.DESCRIPTOR.services_by_name["Admin"].full_name
# Seconds for another worker to serve an rpc.
_TIMEOUT = 30.0
_REQUESTS: dict[str, Any] = {
    method.name: getattr(pb, method.input_type.name) for method in pb.DESCRIPTOR.services_by_name["Admin"].methods
}
# Maximum characters of a name in the audit.
_MAX_AUDITED = 255


@dataclass(frozen=True, slots=True)
class Rpc:
    """One rpc.

    response: type of its response, and of one with only a status. audited: of a write, the audited fields of a request.
    named: anonymous callers are refused, whatever their role. asks: the rpc queries the request's client, so the worker
    serves it to which the client is connected. restricted: serves callers who may not read contents of messages, where
    that makes a difference.
    """

    response: Any
    serve: Callable[[AdminServices, Any], Awaitable[Any]]
    audited: Callable[[Any], object] | None = None
    named: bool = False
    asks: bool = False
    restricted: Callable[[AdminServices, Any], Awaitable[Any]] | None = None

    @property
    def role(self) -> Role:
        return Role.READ if self.audited is None else Role.WRITE


def _names(request: Any, *fields: str) -> dict[str, str]:
    """Return names in a request: texts, and names of topics and groups."""
    values = ((field, getattr(request, field)) for field in fields)
    return {field: (value if isinstance(value, str) else str(value.name))[:_MAX_AUDITED] for field, value in values}


def _rpcs(services: AdminServices) -> dict[str, Rpc]:
    """Return all rpcs."""
    return {
        "ChangeLogLevel": Rpc(
            pb.ChangeLogLevelResponse, replica.change_log_level, lambda request: {"level": request.level}
        ),
        "DescribeTopicStatus": Rpc(pb.DescribeTopicStatusResponse, topics.describe_topic_status),
        "ListSubscription": Rpc(pb.ListSubscriptionResponse, subscriptions.list_subscription),
        "DescribeSubscription": Rpc(pb.DescribeSubscriptionResponse, subscriptions.describe_subscription),
        "DeleteSubscription": Rpc(
            pb.DeleteSubscriptionResponse,
            subscriptions.delete_subscription,
            lambda request: {
                **_names(request, "topic", "group"),
                "expression": request.expression.expression[:_MAX_AUDITED],
            },
        ),
        "DescribeGroupAccumulation": Rpc(pb.DescribeGroupAccumulationResponse, progress.describe_group_accumulation),
        "ListConsumerConnection": Rpc(pb.ListConsumerConnectionResponse, subscriptions.list_consumer_connection),
        "ResetGroupOffset": Rpc(
            pb.ResetGroupOffsetResponse,
            progress.reset_group_offset,
            lambda request: {**_names(request, "group", "topic"), "seconds": request.reset_timestamp.seconds},
        ),
        # Brokers with access control see Gantry, not the caller.
        "QueryMessage": Rpc(
            pb.ListMessageResponse, messages.query_message, named=True, restricted=messages.query_without_contents
        ),
        "PrintThreadStackTrace": Rpc(
            pb.PrintThreadStackTraceResponse, client_tools.print_thread_stack_trace, asks=True
        ),
        "VerifyMessage": Rpc(
            pb.VerifyMessageResponse,
            client_tools.verify_message,
            lambda request: _names(request, "client_id", "group", "topic", "message_id"),
            asks=True,
        ),
        "AdminSendMessage": Rpc(
            pb.AdminSendMessageResponse,
            Sender(services).send,
            lambda request: {**_names(request, "topic"), "bytes": len(request.body)},
        ),
        "GetConsumerRunningInfo": Rpc(
            pb.GetConsumerRunningInfoResponse, client_tools.get_consumer_running_info, asks=True
        ),
        "GetTopicRoute": Rpc(pb.GetTopicRouteResponse, topics.get_topic_route),
        "QueryTimeSpan": Rpc(pb.QueryTimeSpanResponse, progress.query_time_span),
        "GetProxyRuntimeStats": Rpc(pb.GetProxyRuntimeStatsResponse, replica.runtime_stats),
    }


@dataclass(frozen=True, slots=True)
class RpcCall:
    """An rpc for another worker. request: serialised, in hex."""

    name: str
    request: str


class AdminService:
    """All rpcs of apache.rocketmq.v2.Admin, as attributes. `calls` counts them by rpc and v2 code.

    Errors are statuses in the response, as everywhere in the contract; denied access is a gRPC status, and so are all
    errors of ChangeLogLevel, whose response has no status.
    """

    def __init__(self, services: AdminServices, gatekeeping: Gatekeeping) -> None:
        self._services = services
        self._gatekeeping = gatekeeping
        self.calls: Counter[tuple[str, str]] = Counter()
        self.rpcs = _rpcs(services)
        for name, rpc in self.rpcs.items():
            setattr(self, name, partial(self._answer, name, rpc))

    async def _answer(self, name: str, rpc: Rpc, request: Any, context: Any) -> Any:
        # Outcome of calls whose caller left before the response.
        code = Code.REQUEST_TIMEOUT
        caller: Caller | None = None
        try:
            caller = self._caller(context)
            self._check(rpc, caller)
            response = await self._serve(name, rpc, request, caller)
            code = response.status.code if hasattr(response, "status") else Code.OK
            return response
        except Denied as denial:
            code = denial.code
            self._gatekeeping.refusals[denial.reason] += 1
            await context.abort(_GRPC[code], str(denial))
        except Exception as error:
            status = _status(name, error)
            code = status.code
            if "status" not in rpc.response.DESCRIPTOR.fields_by_name:
                await context.abort(_grpc_code(status), status.message)
            return rpc.response(status=status)
        finally:
            self._note(name, rpc, request, caller, peer_of(context).address.host, code)

    # Workers.

    async def _serve(self, name: str, rpc: Rpc, request: Any, caller: Caller) -> Any:
        if rpc.restricted is not None and not may_read_contents(self._gatekeeping.settings, caller):
            return await rpc.restricted(self._services, request)
        worker = await self._holder(request.client_id) if rpc.asks else None
        if worker is None:
            return await rpc.serve(self._services, request)
        call = RpcCall(name, request.SerializeToString().hex())
        try:
            response = await self._services.workers.run(forward_call, call, worker)
        except OperationFailed as error:
            raise Refused(Code.PROXY_TIMEOUT, str(error)) from None
        return rpc.response.FromString(bytes.fromhex(response))

    async def _holder(self, client_id: str) -> int | None:
        """Return the other worker that a client is connected to; None: this one, or no known worker."""
        if (await find_holders(self._services, client_id)).workers:
            return None
        merged = await self._services.workers.gather(find_holders, client_id)
        return next(iter(merged.value.workers), None)

    async def serve_forwarded(self, call: RpcCall) -> str:
        """Serve an rpc that another worker has authorised; return the response, in hex."""
        rpc = self.rpcs[call.name]
        try:
            response = await rpc.serve(self._services, _REQUESTS[call.name].FromString(bytes.fromhex(call.request)))
        except Exception as error:
            # As in `_answer`, every error is a status.
            response = rpc.response(status=_status(call.name, error))
        return str(response.SerializeToString().hex())

    # Checks.

    def _caller(self, context: Any) -> Caller:
        peer = peer_of(context)
        # The first of several metadata entries counts: a second one cannot override it.
        metadata = {key: value for key, value in reversed(context.invocation_metadata()) if isinstance(value, str)}
        subject = None if peer.tls is None else peer.tls.subject
        try:
            return self._gatekeeping.access.caller(peer.address.host, metadata, subject)
        except BadCredentials:
            raise Denied(Code.UNAUTHORIZED, "credentials", "the credential is unknown") from None
        except TooManyLogins:
            raise Denied(Code.TOO_MANY_REQUESTS, "logins", "logins are not verified now, try again") from None

    def _check(self, rpc: Rpc, caller: Caller) -> None:
        wanted = rpc.role.name.lower()
        if caller.role >= rpc.role and not (rpc.named and caller.anonymous):
            return
        if caller.anonymous:
            text = f"this needs the metadata `authorization: Bearer …` with a token of the role {wanted}"
            raise Denied(Code.UNAUTHORIZED, "role", text)
        raise Denied(Code.FORBIDDEN, "role", f"{caller.name} has not the role {wanted}")

    # Traces.

    def _note(self, name: str, rpc: Rpc, request: Any, caller: Caller | None, address: str, code: int) -> None:
        self.calls[name, Code.Name(code) if code in Code.values() else str(code)] += 1
        if rpc.audited is None:
            return
        who = "nobody" if caller is None else caller.name
        path = f"/{SERVICE}/{name}"
        write = Write(event_log.now(), who, address, "POST", path, "", rpc.audited(request), code)
        self._services.audit.record(write, unauthenticated=code == Code.UNAUTHORIZED)


@operation("admin_grpc.call", timeout=_TIMEOUT, merged=False)
async def forward_call(service: AdminService, call: RpcCall) -> str:
    """Serve an rpc at the worker of its client."""
    return await service.serve_forwarded(call)


_GRPC = {
    Code.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    Code.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    Code.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    Code.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def _status(name: str, error: Exception) -> Status:
    """Return the status of a failed rpc; log unexpected errors."""
    if is_unexpected(error):
        _log.error("%s failed", name, exc_info=error)
    return status_of(error)


def _grpc_code(status: Status) -> grpc.StatusCode:
    return _GRPC.get(status.code, grpc.StatusCode.INTERNAL)
