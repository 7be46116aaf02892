"""All findings of the doctor: level, text, remedy."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType


class Level(IntEnum):
    """The severity of a finding. NOTE: informative."""

    OK = 0
    NOTE = 1
    WARN = 2
    FAIL = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: `text` and `remedy` are templates; without a remedy no change is needed."""

    level: Level
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. `code` is its key in the catalogue, stable for scripts; the first word is the check."""

    code: str
    level: Level
    text: str
    remedy: str

    @property
    def check(self) -> str:
        """The check that found it."""
        return self.code.partition(".")[0]


def finding(code: str, /, **met: object) -> Finding:
    """Return a finding by its row in the catalogue; `met` fills the templates."""
    entry = CATALOGUE[code]
    return Finding(code, entry.level, entry.text.format(**met), entry.remedy.format(**met))


_OK, _NOTE, _WARN, _FAIL = Level
_JAVA_ENABLE_SSL = (
    "Java, Go, C++ and C# gRPC clients use TLS by default (off: enableSsl(false)), "
    "Node, Python, Rust and remoting clients do not"
)
_ADVERTISE = "set `listen.advertise` to an address that this client can reach"
_GRANT = (
    "grant the permission: `gantry acl grant {user} {actions} {resource}` with --file for a users file, or with "
    "--endpoint as a super user for users that brokers keep"
)

CATALOGUE: Mapping[str, Entry] = MappingProxyType(
    {
        # Name and addresses.
        "name.address": Entry(_OK, "{host} is an IP address; no lookup is needed"),
        "name.resolved": Entry(_OK, "{host} resolves to {addresses}"),
        "name.unresolved": Entry(
            _FAIL,
            "{host} does not resolve: {error}",
            "check the spelling, the resolver's search domains, and the DNS record in this client's network",
        ),
        "tcp.accepted": Entry(_OK, "{address} accepts connections ({milliseconds:.1f} ms)"),
        "tcp.refused": Entry(
            _FAIL,
            "{address} cannot be reached: {error}",
            "start the server, open the firewall, or remove the address from the DNS record",
        ),
        "tcp.first_refused": Entry(
            _WARN,
            "{address}, the first address of the name, cannot be reached, while others can: {error}",
            "remove it from the DNS record: clients that try only one address fail, others wait for its timeout",
        ),
        # TLS.
        "tls.both": Entry(_OK, "TLS and plain connections are accepted ({version}, {cipher})"),
        "tls.only": Entry(
            _NOTE,
            "only TLS connections are accepted ({version}, {cipher})",
            "use TLS in every client: " + _JAVA_ENABLE_SSL + "; remoting: setUseTLS(true)",
        ),
        "tls.none": Entry(
            _NOTE,
            "TLS is not available: {error}",
            "give Gantry a certificate (`tls.certificate`, `tls.key`), or turn TLS off in every client: "
            + _JAVA_ENABLE_SSL,
        ),
        "tls.required": Entry(
            _FAIL,
            "TLS is required (--tls), but not available: {error}",
            "set `tls.certificate` and `tls.key`, and check that the listener does not have `tls = false`",
        ),
        "tls.plain_required": Entry(
            _FAIL,
            "plain connections are required (--plain), but not accepted",
            "set `tls.mode` to permissive, or use TLS in the clients",
        ),
        "tls.trusted": Entry(_OK, "the certificate is trusted, names {name}, and is valid until {until:%Y-%m-%d}"),
        "tls.self_signed": Entry(
            _NOTE,
            "the certificate is self-signed: it encrypts for clients that verify none, such as Java and Go over gRPC",
            "clients that verify it (Node, Python, Rust) refuse it: set `tls.certificate` and `tls.key`",
        ),
        "tls.untrusted": Entry(
            _WARN,
            "the certificate is not trusted here: {error}",
            "clients that verify it (Node, Python, Rust) refuse it: use a CA that they trust, or give them this CA "
            "(GRPC_DEFAULT_SSL_ROOTS_FILE_PATH); here: --ca FILE. The server must send intermediate CAs too",
        ),
        "tls.name": Entry(
            _WARN,
            "the certificate names {names}, not {name}",
            "connect to one of its names, or issue a certificate with {name} among its subject alternative names",
        ),
        "tls.expired": Entry(_FAIL, "the certificate is not valid now: {error}", "renew the certificate"),
        "tls.expires": Entry(
            _WARN,
            "the certificate expires in {days} days, on {until:%Y-%m-%d}",
            "renew it; Gantry reloads changed files (`tls.reload_interval`)",
        ),
        "tls.outdated": Entry(
            _WARN,
            "{version} is accepted, which RFC 8996 forbids",
            "set the minimum version of the TLS endpoint to TLS 1.2",
        ),
        "tls.client_certificate": Entry(
            _FAIL,
            "after the TLS handshake: {error}. The server requires a client certificate",
            "give the client a certificate of the CA in `tls.client_ca` (here: --cert FILE --key FILE)",
        ),
        "tls.client_certificate_refused": Entry(
            _FAIL,
            "after the TLS handshake: {error}. The server refuses the client certificate",
            "check its validity, that the CA in `tls.client_ca` has issued it, and that it is not in `tls.crl`",
        ),
        # Protocols.
        "endpoint.found": Entry(_OK, "the server is {kind}"),
        "endpoint.closes": Entry(
            _FAIL,
            "every connection is closed without a response",
            "behind a load balancer: it has no healthy backend, or it sends PROXY headers that Gantry does not trust "
            "(`listen.trusted_proxies`; its log says so); otherwise something else listens on this port",
        ),
        "endpoint.silent": Entry(
            _FAIL,
            "connections are accepted, but get no response",
            "the process hangs, or a firewall or load balancer without a backend accepts; check its log",
        ),
        "endpoint.foreign": Entry(
            _FAIL,
            "the server does not speak RocketMQ; it sent {received}",
            "check the port; RocketMQ's defaults are 8080 and 8081 (proxies), 9876 (name server), 10911 (broker)",
        ),
        "endpoint.proxy_protocol": Entry(
            _FAIL,
            "the server responds only to connections that begin with a PROXY protocol header",
            "this port is for load balancers: connect clients to the load balancer, or remove `accept-proxy`",
        ),
        "remoting.answers": Entry(_OK, "remoting works{tls} ({milliseconds:.1f} ms)"),
        "remoting.none": Entry(
            _WARN,
            "remoting does not work: {error}",
            "remoting clients cannot use this endpoint; for a Java proxy use its remotingListenPort",
        ),
        "remoting.busy": Entry(
            _FAIL,
            "requests are answered with code {code}: {remark}",
            "check the server: the remark names the reason",
        ),
        "auth.needed": Entry(
            _FAIL,
            "requests without credentials are denied: {remark}",
            "give a user's credentials: --access-key and --secret-key-file, or a client certificate: --cert and --key",
        ),
        "auth.failed": Entry(
            _FAIL,
            "the credentials of {user} are not accepted: {remark}",
            "compare access key and secret with the server's, without blanks at their ends, and check that the user is "
            "enabled; Gantry's audit log has the reason",
        ),
        "auth.accepted": Entry(_OK, "the credentials of {user} are accepted"),
        "auth.known": Entry(_OK, "requests without a signature are those of the user {user}"),
        "grpc.unauthorized": Entry(
            _FAIL,
            "gRPC does not accept the credentials of {user}",
            "if remoting accepts them, this host's clock differs from the server's, or the time zone of the signature "
            "(UTC) is not in auth.date_zones",
        ),
        "grpc.answers": Entry(_OK, "gRPC works{tls} ({milliseconds:.1f} ms)"),
        "grpc.none": Entry(
            _WARN,
            "gRPC does not work: {error}",
            "gRPC clients cannot use this endpoint: brokers and name servers do not serve gRPC, and a load balancer "
            "in between must forward TCP, or HTTP/2 end to end",
        ),
        "grpc.elsewhere": Entry(_NOTE, "{kind} does not serve gRPC: gRPC clients need an access point"),
        "grpc.not_serving": Entry(
            _FAIL,
            "the gRPC health service reports {service} as {status}",
            "`/readyz` and the log of the replica name the failed check: usually unreachable name servers or brokers, "
            "or a drain",
        ),
        "health.ready": Entry(_OK, "GET /readyz on this port reports ready"),
        "health.not_ready": Entry(
            _FAIL, "GET /readyz reports {status}: {reason}", "the reason names the failed check; see the replica's log"
        ),
        "health.none": Entry(
            _NOTE, "no health endpoints on this port ({error})", "use a TCP connect as the load balancer's probe"
        ),
        "versions.known": Entry(_OK, "{versions}"),
        # Routes.
        "route.unknown": Entry(
            _NOTE,
            "{kind}: none of these topics exists ({topics}), so the route cannot be checked",
            "name an existing topic to check the addresses that clients get: --topic TOPIC",
        ),
        "route.refused": Entry(_NOTE, "routes, topics and groups cannot be checked without valid credentials"),
        "route.denied": Entry(_NOTE, "{kind}: {remark}; so the route cannot be checked"),
        "route.none": Entry(
            _WARN,
            "a broker serves no routes, so clients cannot start here",
            "connect clients to an access point or a name server",
        ),
        "route.same": Entry(_OK, "{kind}: sent to {address}, the dialled endpoint, which responds"),
        "route.reached": Entry(_OK, "{kind}: sent to {address}, which responds and has the same brokers"),
        "route.broker": Entry(_OK, "{kind}: sent to {address}, a broker, which responds"),
        "route.wildcard": Entry(
            _FAIL, "{kind}: sent to {address}, a wildcard address that clients cannot connect to", _ADVERTISE
        ),
        "route.loopback": Entry(
            _FAIL,
            "{kind}: sent to {address}, which is the client's own host",
            "the server advertises a loopback address: " + _ADVERTISE,
        ),
        "route.unresolved": Entry(
            _FAIL,
            "{kind}: sent to {address}, a name that does not resolve here: {error}",
            "the name exists only in the server's network, for example in a container network: " + _ADVERTISE,
        ),
        "route.unreachable": Entry(
            _FAIL,
            "{kind}: sent to {address}, which cannot be reached from here: {error}",
            "usually an address inside a container or behind NAT: " + _ADVERTISE + ", with the mapped port. "
            "For an official proxy or broker: brokerIP1, or its published address",
        ),
        "route.mute": Entry(
            _FAIL,
            "{kind}: sent to {address}, which gives no RocketMQ response: {error}",
            "the port belongs to another program, or requires TLS where this one does not: " + _ADVERTISE,
        ),
        "route.elsewhere": Entry(
            _WARN,
            "{kind}: sent to {address}, which belongs to another cluster: it has {there}, this endpoint has {here}",
            "`listen.advertise` names a host outside this deployment",
        ),
        "route.one_door": Entry(
            _WARN,
            "{kind}: their requests name no broker, and all {count} brokers have the address {address}",
            "give each broker but one its own listener (`[[listen]]` with `broker`); otherwise they get code 15",
        ),
        # Topic and group.
        "topic.unknown": Entry(
            _FAIL,
            "topic {topic} does not exist",
            "create it ({command}), or check its spelling",
        ),
        "topic.usable": Entry(_OK, "topic {topic}: {writable} queues to write, {readable} to read, on {brokers}"),
        "topic.closed": Entry(
            _FAIL,
            "topic {topic} has no queue that can be {verb} now",
            "check its permission (mqadmin updateTopicPerm), and that its brokers have a live master",
        ),
        "topic.types": Entry(_NOTE, "topic {topic} accepts messages of type {types}"),
        "topic.denied": Entry(
            _FAIL,
            "topic {topic}: {action} fails with code {code}: {remark}",
            "the text is the server's; its log has more about system errors",
        ),
        "topic.forbidden": Entry(_FAIL, "topic {topic}: {action} is denied: {remark}", _GRANT),
        "topic.sent": Entry(_OK, "a message was sent to {topic} over {protocol} ({milliseconds:.1f} ms)"),
        "topic.received": Entry(_OK, "the message was read for {group}, without changing its offsets"),
        "topic.not_received": Entry(
            _FAIL,
            "the message sent to {topic} could not be read for {group}: code {code}: {remark}",
            "check the group's permission, and that the broker allows reading",
        ),
        "group.known": Entry(_OK, "group {group} exists{progress}"),
        "group.fresh": Entry(_NOTE, "group {group} has not consumed from {topic} yet, or does not exist"),
        "group.unknown": Entry(
            _WARN,
            "group {group} does not exist at {broker}",
            "create it ({command}), unless brokers create groups with their first member (autoCreateSubscriptionGroup)",
        ),
        "group.denied": Entry(
            _FAIL,
            "group {group}: reading its offset fails with code {code}: {remark}",
            "the text is the server's; its log has more about system errors",
        ),
        "group.forbidden": Entry(_FAIL, "group {group}: reading its offset is denied: {remark}", _GRANT),
        # Clock and idle timeout.
        "clock.agrees": Entry(_OK, "the clocks agree, by {source} ({skew:+.1f} s)"),
        "clock.skewed": Entry(
            _WARN,
            "the clocks differ by {skew:+.1f} s (server less client, by {source})",
            "synchronize both by NTP: delayed messages are delivered by the broker's clock",
        ),
        "clock.wrong": Entry(
            _FAIL,
            "the clocks differ by {skew:+.0f} s (server less client, by {source})",
            "synchronize both by NTP: certificates, delays and retention depend on the clock",
        ),
        "clock.unknown": Entry(_NOTE, "the server's time is unknown; --topic, --group and --write reveal it"),
        "idle.kept": Entry(_OK, "a connection still works after {seconds:.0f} s of silence"),
        "idle.cut": Entry(
            _FAIL,
            "a connection was cut after {seconds:.0f} s of silence",
            "a load balancer, NAT or service mesh closes idle connections: raise its timeout above that of long polls "
            "and heartbeats (30 s), best above `limits.idle_timeout` (120 s)",
        ),
    }
)
