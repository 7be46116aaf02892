"""What is spoken at the endpoint, and by whom."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

import grpc

from protos.apache.rocketmq.v2 import service_pb2
from proxy.tools.doctor import rpc, wire
from proxy.tools.doctor.connection import End, Line, Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.session import Visit
from proxy.tools.doctor.wire import Unanswered
from remoting.codes import LanguageCode, RequestCode, ResponseCode, version_text
from remoting.command import RemotingCommand

# A topic that is nobody's: that it is not known is an answer.
NOBODYS = "gantry-doctor"
# GET_BROKER_RUNTIME_INFO (RocketMQ's RequestCode): brokers answer it, name servers and proxies do not.
_RUNTIME_INFO = 28
_MESSAGING = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].full_name
# A health service that knows no such service, or none at all.
_NO_HEALTH = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND)


BROKER, NAME_SERVER = "a broker", "a name server"
_SOCKET = "Gantry's embedded broker, on the socket of its own"
# Those that are not for gRPC clients, and never were.
REMOTING_ALONE = (BROKER, NAME_SERVER, _SOCKET)


@dataclass(frozen=True, slots=True)
class Traits:
    """What tells the servers apart."""

    ours: bool
    grpc: bool
    remoting: bool
    lists_brokers: bool
    is_broker: bool


# The first that fits. Asked of the same port, a broker knows no routes, a name server nothing of brokers' insides.
_KINDS: tuple[tuple[str, Callable[[Traits], bool]], ...] = (
    ("Gantry", lambda traits: traits.ours and traits.grpc),
    (_SOCKET, lambda traits: traits.ours and traits.lists_brokers),
    ("Gantry", lambda traits: traits.ours),
    ("an official proxy", lambda traits: traits.grpc),
    (BROKER, lambda traits: traits.is_broker),
    (NAME_SERVER, lambda traits: traits.lists_brokers),
    ("an official proxy", lambda traits: traits.remoting),
)


async def protocols(visit: Visit) -> AsyncIterator[Finding]:
    """Speak remoting and gRPC, and ask for health."""
    if visit.address is None or (visit.locked and not visit.open):
        return
    if not visit.open:
        yield await _nobody(visit)
        return
    loop = asyncio.get_running_loop()
    spoken = " over TLS" if visit.uses_tls else ""
    began = loop.time()
    greeting: RemotingCommand | None = None
    trouble, silence = "", None
    try:
        greeting = await wire.ask_route(visit.line, NOBODYS)
    except (Unanswered, Unreachable) as error:
        trouble = str(error)
        silence = error.exchange if isinstance(error, Unanswered) else None
    took = 1000 * (loop.time() - began)
    began = loop.time()
    refused = await _greet(visit)
    took_grpc = 1000 * (loop.time() - began)
    visit.grpc = refused is None
    if greeting is None and not visit.grpc:
        if silence is not None and silence.received:
            yield finding("endpoint.foreign", said=silence.why.removeprefix("it said "))
        else:
            yield finding("endpoint.silent")
        return
    visit.remoting = greeting is not None
    visit.kind = await _kind(visit, greeting)
    if greeting is None:
        yield finding("remoting.none", error=trouble)
    else:
        yield _judged(greeting, spoken, took)
    if refused is None:
        yield finding("grpc.answers", tls=spoken, milliseconds=took_grpc)
    elif visit.kind in REMOTING_ALONE:
        yield finding("grpc.elsewhere", kind=visit.kind)
    else:
        yield finding("grpc.none", error=refused)
    yield finding("endpoint.found", kind=visit.kind)
    async for found in _health(visit):
        yield found
    if greeting is not None and greeting.language != LanguageCode.PYTHON.name:
        told = f"it calls itself RocketMQ {version_text(greeting.version)} ({greeting.language})"
        yield finding("versions.known", versions=told)


async def _nobody(visit: Visit) -> Finding:
    """Neither plain nor TLS: is it that a load balancer is expected, or who is there?"""
    line = visit.plain_line
    try:
        await wire.ask_route(replace(line, prefix=wire.PROXY_LOCAL), NOBODYS)
    except (Unanswered, Unreachable):
        pass
    else:
        return finding("endpoint.proxy_protocol")
    try:
        exchange = await line.exchange(b"", bool)
    except Unreachable as error:
        return finding("tcp.refused", address=line.address, error=error)
    if exchange.received:
        return finding("endpoint.foreign", said=exchange.why.removeprefix("it said "))
    return finding("endpoint.silent" if exchange.end is End.SILENT else "endpoint.closes")


def _judged(greeting: RemotingCommand, spoken: str, took: float) -> Finding:
    if greeting.code in (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY):
        return finding("remoting.busy", code=greeting.code, remark=greeting.remark)
    return finding("remoting.answers", tls=spoken, milliseconds=took)


async def _greet(visit: Visit) -> str | None:
    """Ask a gRPC server for a route; None where it answers as the messaging service, else why not."""
    async with calling(visit) as rpcs:
        try:
            await rpcs.route(NOBODYS)
        except rpc.Refused as error:
            return str(error)
    return None


def calling(visit: Visit) -> AbstractAsyncContextManager[rpc.Rpcs]:
    """The rpcs at the way in that works."""
    assert visit.address is not None
    trust = visit.trust if visit.uses_tls else None
    return rpc.calling(visit.address, visit.options.endpoint, trust, visit.options.timeout)


async def _kind(visit: Visit, greeting: RemotingCommand | None) -> str:
    lists = await _code(visit.line, RequestCode.GET_BROKER_CLUSTER_INFO) if greeting is not None else None
    inside = await _code(visit.line, _RUNTIME_INFO) if greeting is not None else None
    traits = Traits(
        ours=greeting is not None and greeting.language == LanguageCode.PYTHON.name,
        grpc=visit.grpc,
        remoting=visit.remoting,
        lists_brokers=lists == ResponseCode.SUCCESS,
        is_broker=inside == ResponseCode.SUCCESS,
    )
    return next((kind for kind, fits in _KINDS if fits(traits)), "no server that is known here")


async def _code(line: Line, code: int) -> int | None:
    try:
        return (await wire.ask(line, code, {})).code
    except (Unanswered, Unreachable):
        return None


async def _health(visit: Visit) -> AsyncIterator[Finding]:
    """What load balancers are told: over HTTP on this port, and by gRPC's health service."""
    if visit.grpc:
        async with calling(visit) as rpcs:
            for service in ("", _MESSAGING):
                try:
                    status = await rpcs.health(service)
                except rpc.Refused as error:
                    if error.code not in _NO_HEALTH:
                        yield finding("grpc.not_serving", service=service or "the server", status=error)
                    break
                if status != "SERVING":
                    yield finding("grpc.not_serving", service=service or "the server", status=status)
                    break
    try:
        answer = await wire.get(visit.line, "/readyz")
    except (Unanswered, Unreachable) as error:
        yield finding("health.none", error=error)
        return
    if answer.status == 200:
        yield finding("health.ready")
    elif answer.status == 503:
        yield finding("health.not_ready", status=answer.status, reason=answer.reason)
    else:
        yield finding("health.none", error=f"HTTP status {answer.status}")
    if server := answer.headers.get("Server"):
        yield finding("versions.known", versions=f"it calls itself {server}")
