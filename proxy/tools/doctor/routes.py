"""Addresses to which each kind of client is sent, and whether they work: the most common fault of deployments."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace

from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.tools.doctor import rpc, wire
from proxy.tools.doctor.connection import Target, Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.name_resolution import lookup
from proxy.tools.doctor.protocols import BROKER, NAME_SERVER, calling
from proxy.tools.doctor.session import Diagnosis
from proxy.tools.doctor.wire import Unanswered
from proxy.tools.remoting_client import Speaker, route_from_reply
from remoting.codes import OWN_VERSION, ResponseCode, version_ordinal
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.names import BENCHMARK_TOPIC, DEFAULT_TOPIC, SELF_TEST_TOPIC
from remoting.routes import TopicRoute

# Topics of brokers: their routes exist even if the user names no topic.
_COMMON = (DEFAULT_TOPIC, SELF_TEST_TOPIC, BENCHMARK_TOPIC)
# The addresses that a client gets, by broker name.
BrokerAddresses = Mapping[str, set[str]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of remoting client. names_brokers: its requests name their broker."""

    name: str
    speaker: Speaker
    names_brokers: bool


_NEW = Kind("Java clients from 4.9.5 on", Speaker("JAVA", OWN_VERSION), True)
_OLD = Kind("older Java, Go v2 and C++ clients", Speaker("CPP", version_ordinal(4, 6, 0)), False)
_GRPC = "gRPC clients"


async def check_routes(diagnosis: Diagnosis) -> AsyncIterator[Finding]:
    """Request a route as each kind of client does, and check its addresses."""
    if diagnosis.kind == BROKER:
        yield finding("route.none")
    elif diagnosis.refused:
        yield finding("route.refused")
    elif diagnosis.remoting:
        route = await _any_route(diagnosis)
        if isinstance(route, RemotingCommand):
            yield finding("route.denied", kind="remoting clients", remark=route.remark)
        elif route is None:
            asked = diagnosis.options.topic or ", ".join(_COMMON)
            yield finding("route.unknown", kind="remoting clients", topics=asked)
        else:
            diagnosis.topic, diagnosis.brokers = route.topic, route.brokers
            async for found in _remoting(diagnosis, route.topic):
                yield found
    if diagnosis.grpc_code == Code.UNAUTHORIZED:
        return
    if diagnosis.grpc and diagnosis.options.topic is not None:
        async for found in _grpc(diagnosis, diagnosis.options.topic):
            yield found
    elif diagnosis.grpc:
        yield finding("route.unknown", kind=_GRPC, topics="system topics are not theirs")


async def _any_route(diagnosis: Diagnosis) -> TopicRoute | RemotingCommand | None:
    """Return a route; the denial if the user's permissions do not suffice for the named topic; else None."""
    wanted = diagnosis.options.topic
    for topic in _COMMON if wanted is None else (wanted,):
        try:
            reply = await wire.ask_route(diagnosis.line, topic, _NEW.speaker)
            route = route_from_reply(topic, reply)
        except (Unanswered, Unreachable, BodyError):
            continue
        if route is not None:
            return route
        if wanted is not None and reply.code == ResponseCode.NO_PERMISSION:
            return reply
    return None


async def _route(diagnosis: Diagnosis, topic: str, speaker: Speaker) -> TopicRoute | None:
    try:
        return route_from_reply(topic, await wire.ask_route(diagnosis.line, topic, speaker))
    except (Unanswered, Unreachable, BodyError):
        return None


async def _remoting(diagnosis: Diagnosis, topic: str) -> AsyncIterator[Finding]:
    answers: list[tuple[str, BrokerAddresses]] = []
    for kind in (_NEW, _OLD):
        route = await _route(diagnosis, topic, kind.speaker)
        addresses: BrokerAddresses = {} if route is None else _addresses(route)
        distinct = sorted(set().union(*addresses.values()))
        if not kind.names_brokers and len(addresses) > 1 and len(distinct) == 1:
            yield finding("route.one_door", kind=kind.name, count=len(addresses), address=distinct[0])
        answers.append((kind.name, addresses))
    if answers[0][1] == answers[1][1]:
        answers = [("remoting clients", answers[0][1])]
    for name, addresses in answers:
        for address in sorted(set().union(*addresses.values())):
            yield await check_address(diagnosis, name, address, topic)


def _addresses(route: TopicRoute) -> dict[str, set[str]]:
    return {broker["brokerName"]: set(broker["brokerAddrs"].values()) for broker in route.data["brokerDatas"]}


async def _grpc(diagnosis: Diagnosis, topic: str) -> AsyncIterator[Finding]:
    async with calling(diagnosis) as rpcs:
        try:
            answer = await rpcs.route(topic)
        except rpc.Refused as error:
            yield finding("grpc.none", error=error)
            return
    if answer.status.code == Code.FORBIDDEN:
        yield finding("route.denied", kind=_GRPC, remark=answer.status.message)
        return
    if answer.status.code != Code.OK:
        yield finding("route.unknown", kind=_GRPC, topics=f"{topic}: {answer.status.message}")
        return
    for address in _distinct(rpc.addresses(answer).values()):
        yield await check_address(diagnosis, _GRPC, address, topic)


def _distinct(addresses: Iterable[set[str]]) -> list[str]:
    return sorted(set().union(*addresses))


async def check_address(diagnosis: Diagnosis, kind: str, text: str, topic: str) -> Finding:
    """Check an address that clients get."""
    subject = {"kind": kind, "address": text}
    try:
        address = HostPort.parse(text)
    except ValueError:
        return finding("route.wildcard", **subject)
    if address.is_wildcard or address.port == 0:
        return finding("route.wildcard", **subject)
    if address.is_local and not all(each.is_local for each in diagnosis.addresses):
        return finding("route.loopback", **subject)
    try:
        resolved = await lookup(address)
    except (OSError, UnicodeError) as error:
        return finding("route.unresolved", **subject, error=getattr(error, "strerror", None) or error)
    line = replace(diagnosis.line, address=resolved[0])
    try:
        # A gRPC client's address need not serve remoting.
        there = await (_ask_grpc(diagnosis, resolved[0], topic) if kind == _GRPC else _ask(diagnosis, line, topic))
    except Unreachable as error:
        return finding("route.unreachable", **subject, error=error)
    except (Unanswered, rpc.Refused, BodyError) as error:
        return finding("route.mute", **subject, error=error)
    if there is None:
        return finding("route.broker", **subject)
    if address in (diagnosis.options.endpoint, diagnosis.address):
        return finding("route.same", **subject)
    here = diagnosis.brokers or there
    if set(there) != set(here):
        return finding("route.elsewhere", **subject, there=", ".join(there) or "none", here=", ".join(here))
    return finding("route.reached", **subject)


async def _ask(diagnosis: Diagnosis, line: Target, topic: str) -> tuple[str, ...] | None:
    """Return the brokers of a route at that address; None at a broker, which has no routes."""
    answer = await wire.ask_route(line, topic, _NEW.speaker)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return None
    route = route_from_reply(topic, answer)
    if route is not None and diagnosis.kind == NAME_SERVER:
        return None
    return () if route is None else route.brokers


async def _ask_grpc(diagnosis: Diagnosis, address: HostPort, topic: str) -> tuple[str, ...]:
    async with target_at(diagnosis, address).opened():
        # Reachability, with a plain reason: gRPC words it differently.
        pass
    trust = diagnosis.trust if diagnosis.uses_tls else None
    options = diagnosis.options
    async with rpc.calling(address, options.endpoint, trust, options.timeout, options.credentials) as rpcs:
        answer = await rpcs.route(topic)
    return tuple(sorted(rpc.addresses(answer)))


def target_at(diagnosis: Diagnosis, address: HostPort) -> Target:
    """Return a plain target at another address."""
    return replace(diagnosis.plain_target, address=address)
