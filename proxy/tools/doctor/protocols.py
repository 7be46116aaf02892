"""The protocols at the endpoint, and the kind of server."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

import grpc

from protos.apache.rocketmq.v2 import service_pb2
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.tools.doctor import rpc, wire
from proxy.tools.doctor.connection import End, Target, Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.session import Diagnosis, Options
from proxy.tools.doctor.wire import Unanswered
from remoting.codes import LanguageCode, RequestCode, ResponseCode, version_text
from remoting.command import RemotingCommand

# In the remark of Gantry about an authenticated sender.
_KNOWN_USER = re.compile(r"the user (\S+) has no permission")
# GET_BROKER_RUNTIME_INFO (RocketMQ's RequestCode): brokers answer it, name servers and proxies do not, but Gantry in
# front of its embedded broker does.
_RUNTIME_INFO = 28
_MESSAGING = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].full_name
# The health service does not know this service, or does not exist.
_NO_HEALTH = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND)

GANTRY, BROKER, NAME_SERVER = "Gantry", "a broker", "a name server"
_SOCKET = "Gantry's embedded broker, on the socket of its own"
# Servers without gRPC.
REMOTING_ALONE = (BROKER, NAME_SERVER, _SOCKET)


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties that distinguish servers."""

    ours: bool
    grpc: bool
    remoting: bool
    lists_brokers: bool
    is_broker: bool


# The first match wins. A broker knows no routes, a name server no broker internals.
_KINDS: tuple[tuple[str, Callable[[Traits], bool]], ...] = (
    (GANTRY, lambda traits: traits.ours and traits.grpc),
    (_SOCKET, lambda traits: traits.ours and traits.is_broker),
    (GANTRY, lambda traits: traits.ours),
    ("an official proxy", lambda traits: traits.grpc),
    (BROKER, lambda traits: traits.is_broker),
    (NAME_SERVER, lambda traits: traits.lists_brokers),
    ("an official proxy", lambda traits: traits.remoting),
)


async def check_protocols(diagnosis: Diagnosis) -> AsyncIterator[Finding]:
    """Speak remoting and gRPC, and query the health endpoints."""
    if diagnosis.address is None or (diagnosis.locked and not diagnosis.open):
        return
    if not diagnosis.open:
        yield await _explain_silence(diagnosis)
        return
    loop = asyncio.get_running_loop()
    spoken = " over TLS" if diagnosis.uses_tls else ""
    began = loop.time()
    greeting: RemotingCommand | None = None
    trouble, silence = "", None
    try:
        greeting = await wire.ask_route(diagnosis.line, wire.UNUSED_TOPIC)
    except (Unanswered, Unreachable) as error:
        trouble = str(error)
        silence = error.exchange if isinstance(error, Unanswered) else None
    took = 1000 * (loop.time() - began)
    began = loop.time()
    refused = await _try_grpc(diagnosis)
    took_grpc = 1000 * (loop.time() - began)
    diagnosis.grpc = refused is None
    if greeting is None and not diagnosis.grpc:
        if silence is not None and silence.received:
            yield finding("endpoint.foreign", received=silence.why.removeprefix("it sent "))
        else:
            yield finding("endpoint.silent")
        return
    diagnosis.remoting = greeting is not None
    diagnosis.kind = await _kind(diagnosis, greeting)
    if greeting is None:
        yield finding("remoting.none", error=trouble)
    else:
        identified = _identify(greeting, spoken, took, diagnosis.options)
        diagnosis.refused = identified.code in ("auth.needed", "auth.failed")
        yield identified
    if refused is None:
        if diagnosis.grpc_code == Code.UNAUTHORIZED and diagnosis.options.credentials is not None:
            yield finding("grpc.unauthorized", user=diagnosis.options.credentials.access_key)
        else:
            yield finding("grpc.answers", tls=spoken, milliseconds=took_grpc)
    elif diagnosis.kind in REMOTING_ALONE:
        yield finding("grpc.elsewhere", kind=diagnosis.kind)
    else:
        yield finding("grpc.none", error=refused)
    yield finding("endpoint.found", kind=diagnosis.kind)
    async for found in _health(diagnosis):
        yield found
    if greeting is not None and greeting.language != LanguageCode.PYTHON.name:
        versions = f"it calls itself RocketMQ {version_text(greeting.version)} ({greeting.language})"
        yield finding("versions.known", versions=versions)


async def _explain_silence(diagnosis: Diagnosis) -> Finding:
    """Find out why neither plain nor TLS works: a missing PROXY header, or another kind of server."""
    line = diagnosis.plain_target
    try:
        await wire.ask_route(replace(line, prefix=wire.PROXY_LOCAL), wire.UNUSED_TOPIC)
    except (Unanswered, Unreachable):
        pass
    else:
        return finding("endpoint.proxy_protocol")
    try:
        exchange = await line.exchange(b"", bool)
    except Unreachable as error:
        return finding("tcp.refused", address=line.address, error=error)
    if exchange.received:
        return finding("endpoint.foreign", received=exchange.why.removeprefix("it sent "))
    return finding("endpoint.silent" if exchange.end is End.SILENT else "endpoint.closes")


def _identify(greeting: RemotingCommand, spoken: str, took: float, options: Options) -> Finding:
    if greeting.code in (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY):
        return finding("remoting.busy", code=greeting.code, remark=greeting.remark)
    if greeting.code == ResponseCode.NO_PERMISSION:
        return _explain_denial(greeting.remark or "", options)
    return finding("remoting.answers", tls=spoken, milliseconds=took)


def _explain_denial(remark: str, options: Options) -> Finding:
    """Explain NO_PERMISSION: no credentials, wrong ones, or a user without permission on the topic of this check."""
    credentials = options.credentials
    known = _KNOWN_USER.search(remark)
    if credentials is None and known is not None:
        # By the client certificate, or anonymous.
        return finding("auth.known", user=known[1])
    if credentials is None:
        return finding("auth.needed", remark=remark)
    if "has no permission" in remark:
        return finding("auth.accepted", user=credentials.access_key)
    return finding("auth.failed", user=credentials.access_key, remark=remark)


async def _try_grpc(diagnosis: Diagnosis) -> str | None:
    """Request a route by gRPC; return None if the messaging service answers, else the reason."""
    async with calling(diagnosis) as rpcs:
        try:
            diagnosis.grpc_code = (await rpcs.route(wire.UNUSED_TOPIC)).status.code
        except rpc.Refused as error:
            return str(error)
    return None


def calling(diagnosis: Diagnosis) -> AbstractAsyncContextManager[rpc.Rpcs]:
    """Return the rpcs at the working target."""
    assert diagnosis.address is not None
    trust = diagnosis.trust if diagnosis.uses_tls else None
    options = diagnosis.options
    return rpc.calling(diagnosis.address, options.endpoint, trust, options.timeout, options.credentials)


async def _kind(diagnosis: Diagnosis, greeting: RemotingCommand | None) -> str:
    lists = await _code(diagnosis.line, RequestCode.GET_BROKER_CLUSTER_INFO) if greeting is not None else None
    inside = await _code(diagnosis.line, _RUNTIME_INFO) if greeting is not None else None
    traits = Traits(
        ours=greeting is not None and greeting.language == LanguageCode.PYTHON.name,
        grpc=diagnosis.grpc,
        remoting=diagnosis.remoting,
        lists_brokers=lists == ResponseCode.SUCCESS,
        is_broker=inside == ResponseCode.SUCCESS,
    )
    return next((kind for kind, fits in _KINDS if fits(traits)), "no server that is known here")


async def _code(line: Target, code: int) -> int | None:
    try:
        return (await wire.ask(line, code, {})).code
    except (Unanswered, Unreachable):
        return None


async def _health(diagnosis: Diagnosis) -> AsyncIterator[Finding]:
    """Check health as load balancers do: over HTTP on this port, and by gRPC's health service."""
    if diagnosis.grpc:
        async with calling(diagnosis) as rpcs:
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
        answer = await wire.get(diagnosis.line, "/readyz")
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
