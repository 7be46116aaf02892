"""Everything that the doctor may find: how bad it is, what it says, and what to change."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType


class Level(IntEnum):
    """How bad a finding is. NOTE: nothing to judge, but worth knowing."""

    OK = 0
    NOTE = 1
    WARN = 2
    FAIL = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: `text` and `remedy` are templates for what was met; an empty remedy: there is nothing to change."""

    level: Level
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found. `code` is the catalogue's key, stable for scripts: its first word is the check."""

    code: str
    level: Level
    text: str
    remedy: str

    @property
    def check(self) -> str:
        """The check that found it."""
        return self.code.partition(".")[0]


def finding(code: str, /, **met: object) -> Finding:
    """A finding by its row in the catalogue; `met` fills the templates."""
    entry = CATALOGUE[code]
    return Finding(code, entry.level, entry.text.format(**met), entry.remedy.format(**met))


_OK, _NOTE, _WARN, _FAIL = Level
_JAVA_ENABLE_SSL = (
    "Java, Go, C++ and C# gRPC clients use TLS unless told otherwise (enableSsl(false)), "
    "Node, Python, Rust and remoting clients do not"
)
_ADVERTISE = "set `listen.advertise` to an address that clients like this one can dial"

CATALOGUE: Mapping[str, Entry] = MappingProxyType(
    {
        # The name, and what is behind it.
        "name.address": Entry(_OK, "{host} is an address: there is no name to look up"),
        "name.resolved": Entry(_OK, "{host} is {addresses}"),
        "name.unresolved": Entry(
            _FAIL,
            "{host} has no address: {error}",
            "check the spelling, the resolver's search domains, and that the record exists where this client stands",
        ),
        "tcp.accepted": Entry(_OK, "{address} accepts connections ({milliseconds:.1f} ms)"),
        "tcp.refused": Entry(
            _FAIL,
            "{address} cannot be reached: {error}",
            "start what shall listen there, open the firewall, or take the address out of the name's record",
        ),
        "tcp.first_refused": Entry(
            _WARN,
            "{address}, which the resolver puts first, cannot be reached, while others can: {error}",
            "take it out of the name's record: clients that try one address only fail, others wait for its timeout",
        ),
        # TLS.
        "tls.both": Entry(_OK, "TLS and plain are both taken ({version}, {cipher})"),
        "tls.only": Entry(
            _NOTE,
            "only TLS is taken ({version}, {cipher})",
            "every client has to use TLS: " + _JAVA_ENABLE_SSL + "; remoting: setUseTLS(true)",
        ),
        "tls.none": Entry(
            _NOTE,
            "no TLS is spoken here: {error}",
            "give Gantry a certificate (`tls.certificate`, `tls.key`), or tell every client to do without: "
            + _JAVA_ENABLE_SSL,
        ),
        "tls.required": Entry(
            _FAIL,
            "TLS is wanted (--tls), and is not spoken here: {error}",
            "set `tls.certificate` and `tls.key`, and look whether the listener has `tls = false`",
        ),
        "tls.plain_required": Entry(
            _FAIL,
            "plain connections are wanted (--plain), and are not taken here",
            "set `tls.mode` to permissive, or let the clients use TLS",
        ),
        "tls.trusted": Entry(_OK, "the certificate is trusted, is for {name}, and is valid until {until:%Y-%m-%d}"),
        "tls.untrusted": Entry(
            _WARN,
            "the certificate is not trusted here: {error}",
            "clients that verify (Node, Python, Rust) refuse it: use one of a CA that they trust, or give them its CA "
            "(GRPC_DEFAULT_SSL_ROOTS_FILE_PATH); here: --ca FILE. A server has to send the intermediate CAs too",
        ),
        "tls.name": Entry(
            _WARN,
            "the certificate is not for {name}, but for {names}",
            "dial one of its names, or issue a certificate with {name} among its subject alternative names",
        ),
        "tls.expired": Entry(_FAIL, "the certificate is not valid now: {error}", "renew the certificate"),
        "tls.expires": Entry(
            _WARN,
            "the certificate expires in {days} days, on {until:%Y-%m-%d}",
            "renew it; Gantry takes changed files up by itself (`tls.reload_interval`)",
        ),
        "tls.outdated": Entry(
            _WARN,
            "{version} is still accepted, which RFC 8996 forbids",
            "let whatever ends TLS here accept nothing below TLS 1.2",
        ),
        "tls.client_certificate": Entry(
            _FAIL,
            "TLS is agreed on, and then: {error}. A client certificate is asked for",
            "give the client one of the CA in `tls.client_ca` (here: --cert FILE --key FILE)",
        ),
        # What is spoken.
        "endpoint.found": Entry(_OK, "this is {kind}"),
        "endpoint.closes": Entry(
            _FAIL,
            "every connection is closed without a word, whatever is said on it",
            "behind a load balancer: it has no healthy backend, or it sends PROXY headers that Gantry does not trust "
            "(`listen.trusted_proxies`; its log says so); otherwise something else listens on this port",
        ),
        "endpoint.silent": Entry(
            _FAIL,
            "connections are taken, and nothing is ever answered",
            "the process hangs, or a firewall or load balancer accepts on behalf of nobody; look at its log",
        ),
        "endpoint.foreign": Entry(
            _FAIL,
            "what answers here is no RocketMQ server; it says {said}",
            "check the port; RocketMQ's are mostly 8080 and 8081 (proxies), 9876 (name server), 10911 (broker)",
        ),
        "endpoint.proxy_protocol": Entry(
            _FAIL,
            "nothing is answered unless the connection begins with a PROXY protocol header",
            "this port is for load balancers: let clients dial the load balancer, or take `accept-proxy` off",
        ),
        "remoting.answers": Entry(_OK, "remoting is spoken{tls} ({milliseconds:.1f} ms)"),
        "remoting.none": Entry(
            _WARN,
            "remoting is not spoken: {error}",
            "remoting clients cannot use this endpoint; before a Java proxy take its remotingListenPort",
        ),
        "remoting.busy": Entry(
            _FAIL,
            "requests are answered with code {code}: {remark}",
            "look at the server: the remark says what it lacks",
        ),
        "grpc.answers": Entry(_OK, "gRPC is spoken{tls} ({milliseconds:.1f} ms)"),
        "grpc.none": Entry(
            _WARN,
            "gRPC is not spoken: {error}",
            "gRPC clients cannot use this endpoint: a broker and a name server do not speak it, and a load balancer "
            "before it has to pass TCP, or HTTP/2 from end to end",
        ),
        "grpc.elsewhere": Entry(_NOTE, "gRPC is not spoken by {kind}: gRPC clients need an access point"),
        "grpc.not_serving": Entry(
            _FAIL,
            "the gRPC health service says that {service} is {status}",
            "`/readyz` and the log of the replica say which part is missing: mostly name servers or brokers that it "
            "cannot reach, or it is being drained",
        ),
        "health.ready": Entry(_OK, "GET /readyz on this port says that it is ready"),
        "health.not_ready": Entry(
            _FAIL, "GET /readyz says {status}: {reason}", "the reason says which part is missing; see the replica's log"
        ),
        "health.none": Entry(
            _NOTE, "no health endpoints on this port ({error})", "let load balancers probe with a TCP connect"
        ),
        "versions.known": Entry(_OK, "{versions}"),
        # Where clients are sent.
        "route.unknown": Entry(
            _NOTE,
            "{kind}: no topic to ask for a route of ({topics})",
            "name one of yours to see where clients are sent: --topic TOPIC",
        ),
        "route.none": Entry(
            _WARN,
            "a broker tells no routes, so no client can begin here",
            "let clients dial an access point, or a name server",
        ),
        "route.same": Entry(_OK, "{kind}: sent to {address}, which was dialled, and which answers"),
        "route.reached": Entry(_OK, "{kind}: sent to {address}, which answers and knows the same brokers"),
        "route.broker": Entry(_OK, "{kind}: sent to {address}, which is a broker and answers"),
        "route.wildcard": Entry(_FAIL, "{kind}: sent to {address}, which is no address to dial", _ADVERTISE),
        "route.loopback": Entry(
            _FAIL,
            "{kind}: sent to {address}, which every client takes for itself",
            "the server knows itself by a loopback address: " + _ADVERTISE,
        ),
        "route.unresolved": Entry(
            _FAIL,
            "{kind}: sent to {address}, a name that has no address here: {error}",
            "it is a name of the server's own network, as of a container: " + _ADVERTISE,
        ),
        "route.unreachable": Entry(
            _FAIL,
            "{kind}: sent to {address}, which cannot be reached from here: {error}",
            "mostly the address inside a container or behind NAT: " + _ADVERTISE + "; for a port that is mapped, too. "
            "Of an official proxy or broker: brokerIP1, or the address that they publish",
        ),
        "route.mute": Entry(
            _FAIL,
            "{kind}: sent to {address}, where nobody answers as RocketMQ does: {error}",
            "the port is somebody else's, or wants TLS where this one does not: " + _ADVERTISE,
        ),
        "route.elsewhere": Entry(
            _WARN,
            "{kind}: sent to {address}, which is another cluster's: it knows {there}, here it is {here}",
            "`listen.advertise` names a machine that is not of this deployment",
        ),
        "route.one_door": Entry(
            _WARN,
            "{kind}: they do not say which broker a request is for, and all {count} brokers are at {address}",
            "give each broker but one a listener of its own (`[[listen]]` with `broker`); without, they get code 15",
        ),
        # Topic and group.
        "topic.unknown": Entry(
            _FAIL,
            "topic {topic} does not exist",
            "create it (mqadmin updateTopic -n NAMESRV -c CLUSTER -t {topic}), or check its spelling",
        ),
        "topic.usable": Entry(_OK, "topic {topic}: {writable} queues to write, {readable} to read, on {brokers}"),
        "topic.closed": Entry(
            _FAIL,
            "topic {topic} has no queue that can be {verb} now",
            "its permission may be too narrow (mqadmin updateTopicPerm), or its brokers have no live master",
        ),
        "topic.types": Entry(_NOTE, "topic {topic} takes messages of the type {types}"),
        "topic.denied": Entry(
            _FAIL,
            "topic {topic}: {action} is answered with code {code}: {remark}",
            "where the brokers check permissions, allow it to the client's user; the doctor itself asks unsigned",
        ),
        "topic.sent": Entry(_OK, "a message was sent to {topic} over {protocol} ({milliseconds:.1f} ms)"),
        "topic.received": Entry(_OK, "and was read again for {group}, whose offsets stay where they were"),
        "topic.not_received": Entry(
            _FAIL,
            "the message sent to {topic} could not be read for {group}: code {code}: {remark}",
            "look at the group's permission, and whether reading is allowed on that broker",
        ),
        "group.known": Entry(_OK, "group {group} exists{progress}"),
        "group.fresh": Entry(_NOTE, "group {group} has not consumed from {topic} yet, or does not exist"),
        "group.unknown": Entry(
            _WARN,
            "group {group} does not exist at {broker}",
            "create it (mqadmin updateSubGroup), unless brokers may make groups with their first member "
            "(autoCreateSubscriptionGroup)",
        ),
        "group.denied": Entry(
            _FAIL,
            "group {group}: its offset is answered with code {code}: {remark}",
            "where the brokers check permissions, allow it to the client's user; the doctor itself asks unsigned",
        ),
        # The rest.
        "clock.agrees": Entry(_OK, "the clocks agree, by {source} ({skew:+.1f} s)"),
        "clock.skewed": Entry(
            _WARN,
            "the clocks differ by {skew:+.1f} s (server less client, by {source})",
            "let both follow NTP: deliveries that are set ahead come at the broker's time",
        ),
        "clock.wrong": Entry(
            _FAIL,
            "the clocks differ by {skew:+.0f} s (server less client, by {source})",
            "one of them is wrong, and certificates, delays and retention go by it: let both follow NTP",
        ),
        "clock.unknown": Entry(_NOTE, "the server does not tell its time; with --topic, --group and --write it does"),
        "idle.kept": Entry(_OK, "a connection that was silent for {seconds:.0f} s still answers"),
        "idle.cut": Entry(
            _FAIL,
            "a connection that was silent for {seconds:.0f} s has been cut",
            "something between (load balancer, NAT, service mesh) closes idle connections: raise its timeout above "
            "that of long polls and heartbeats (30 s), best above `limits.idle_timeout` (120 s)",
        ),
    }
)
