from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol_negotiation.detect import Protocol
from protocol_negotiation.negotiation import (
    HANDED_OVER,
    Decision,
    HandOver,
    Negotiation,
    Outcome,
    Policy,
    Refused,
    StartTls,
)
from protocol_negotiation.networks import parse_network
from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls import TlsMode
from tests.protocol_negotiation.samples import (
    HTTP1_REQUEST,
    HTTP2_PREFACE,
    LOOPBACK,
    PROXY_V1,
    PROXY_V2,
    client_hello,
    encode_v2,
    remoting_frame,
)

TRUSTED, UNTRUSTED, UNIX = HostPort("127.0.0.1", 5), HostPort("203.0.113.1", 5), HostPort("unix:", 0)
PERMISSIVE = Policy(TlsMode.PERMISSIVE, LOOPBACK)
ENFORCING = Policy(TlsMode.ENFORCING, LOOPBACK)
DISABLED = Policy(TlsMode.DISABLED, LOOPBACK)
REMOTING_ONLY = Policy(TlsMode.PERMISSIVE, LOOPBACK, frozenset({Protocol.REMOTING}))
HELLO, FRAME, LOCAL = client_hello(), remoting_frame(), encode_v2(0, b"", command=0)
PLAIN = [(FRAME, Protocol.REMOTING), (HTTP2_PREFACE, Protocol.GRPC), (HTTP1_REQUEST, Protocol.HTTP1)]


def whole(negotiation: Negotiation, data: bytes) -> tuple[Decision | None, int]:
    return negotiation.feed(data), len(data)


def byte_by_byte(negotiation: Negotiation, data: bytes) -> tuple[Decision | None, int]:
    for size in range(len(data)):
        decision = negotiation.feed(data[size : size + 1])
        if decision is not None:
            return decision, size + 1
    return None, len(data)


Feed = Callable[[Negotiation, bytes], tuple[Decision | None, int]]
FEEDS = pytest.mark.parametrize("feed", [whole, byte_by_byte])


@FEEDS
@pytest.mark.parametrize("policy", [PERMISSIVE, DISABLED])
@pytest.mark.parametrize("header", [b"", PROXY_V1, PROXY_V2, LOCAL])
@pytest.mark.parametrize(("data", "protocol"), PLAIN)
def test_plaintext_is_handed_over(feed: Feed, policy: Policy, header: bytes, data: bytes, protocol: Protocol) -> None:
    negotiation = Negotiation(policy, TRUSTED)
    decision, used = feed(negotiation, header + data)
    assert decision == HandOver(protocol, HANDED_OVER[protocol], data[: used - len(header)])
    assert (negotiation.proxy is not None) is bool(header)
    if header in (PROXY_V1, PROXY_V2):
        assert negotiation.proxy is not None
        assert negotiation.proxy.source == HostPort("192.0.2.7", 51000)


@FEEDS
@pytest.mark.parametrize("policy", [PERMISSIVE, ENFORCING])
@pytest.mark.parametrize("header", [b"", PROXY_V1, PROXY_V2])
@pytest.mark.parametrize(("data", "protocol"), PLAIN)
def test_tls_is_started_and_then_handed_over(
    feed: Feed, policy: Policy, header: bytes, data: bytes, protocol: Protocol
) -> None:
    negotiation = Negotiation(policy, TRUSTED)
    decision, used = feed(negotiation, header + HELLO)
    assert decision == StartTls(HELLO[: used - len(header)])
    negotiation.encrypted()
    decision, used = feed(negotiation, data)
    assert decision == HandOver(protocol, HANDED_OVER[protocol], data[:used])


@FEEDS
@pytest.mark.parametrize(
    ("policy", "sender", "data", "outcome"),
    [
        (DISABLED, TRUSTED, HELLO, Outcome.TLS_REFUSED),
        (DISABLED, TRUSTED, PROXY_V2 + HELLO, Outcome.TLS_REFUSED),
        (ENFORCING, TRUSTED, FRAME, Outcome.PLAINTEXT_REFUSED),
        (ENFORCING, TRUSTED, HTTP2_PREFACE, Outcome.PLAINTEXT_REFUSED),
        (ENFORCING, TRUSTED, HTTP1_REQUEST, Outcome.PLAINTEXT_REFUSED),
        (PERMISSIVE, UNTRUSTED, PROXY_V1 + FRAME, Outcome.PROXY_UNTRUSTED),
        (PERMISSIVE, UNTRUSTED, PROXY_V2 + FRAME, Outcome.PROXY_UNTRUSTED),
        (Policy(), TRUSTED, PROXY_V2 + FRAME, Outcome.PROXY_UNTRUSTED),
        (PERMISSIVE, TRUSTED, PROXY_V1 + PROXY_V2 + FRAME, Outcome.PROXY_INVALID),
        (PERMISSIVE, TRUSTED, LOCAL + LOCAL, Outcome.PROXY_INVALID),
        (PERMISSIVE, TRUSTED, b"PROXY NONSENSE\r\n", Outcome.PROXY_INVALID),
        (PERMISSIVE, TRUSTED, b"SSH-2.0-x\r\n", Outcome.UNKNOWN),
        (PERMISSIVE, TRUSTED, PROXY_V1 + b"SSH-2.0-x\r\n", Outcome.UNKNOWN),
        (REMOTING_ONLY, TRUSTED, HTTP1_REQUEST, Outcome.UNKNOWN),
        (REMOTING_ONLY, TRUSTED, HTTP2_PREFACE, Outcome.UNKNOWN),
    ],
)
def test_connections_against_the_policy_are_refused(
    feed: Feed, policy: Policy, sender: HostPort, data: bytes, outcome: Outcome
) -> None:
    decision, _ = feed(Negotiation(policy, sender), data)
    assert isinstance(decision, Refused)
    assert decision.outcome is outcome
    assert decision.reason


@FEEDS
@pytest.mark.parametrize(
    ("data", "outcome"),
    [(HELLO, Outcome.UNKNOWN), (PROXY_V1, Outcome.PROXY_INVALID), (PROXY_V2, Outcome.PROXY_INVALID)],
)
def test_tls_and_proxy_headers_inside_tls_are_refused(feed: Feed, data: bytes, outcome: Outcome) -> None:
    negotiation = Negotiation(PERMISSIVE, TRUSTED)
    negotiation.feed(HELLO)
    negotiation.encrypted()
    decision, _ = feed(negotiation, data)
    assert isinstance(decision, Refused)
    assert decision.outcome is outcome


def test_proxy_headers_over_unix_sockets_are_trusted() -> None:
    assert isinstance(Negotiation(Policy(), UNIX).feed(PROXY_V2 + FRAME), HandOver)


def test_a_trusted_network_may_be_ipv4_mapped() -> None:
    policy = Policy(trusted_proxies=(parse_network("::ffff:127.0.0.0/104"),))
    assert isinstance(Negotiation(policy, TRUSTED).feed(PROXY_V2 + FRAME), HandOver)


def test_expired_distinguishes_silent_from_incomplete() -> None:
    negotiation = Negotiation(PERMISSIVE, TRUSTED)
    assert negotiation.expired().outcome is Outcome.SILENT
    assert negotiation.feed(FRAME[:3]) is None
    assert negotiation.expired().outcome is Outcome.INCOMPLETE
    assert negotiation.first_bytes == FRAME[:3]
    negotiation = Negotiation(PERMISSIVE, TRUSTED)
    negotiation.feed(HELLO)
    negotiation.encrypted()
    assert negotiation.expired().outcome is Outcome.SILENT


def test_handed_over_data_is_not_copied() -> None:
    data = FRAME + bytes(100_000)
    decision = Negotiation(PERMISSIVE, TRUSTED).feed(data)
    assert isinstance(decision, HandOver)
    assert decision.data is data


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=20), st.sampled_from([b"", PROXY_V1, PROXY_V2[:20]]))
def test_garbage_never_raises(chunks: list[bytes], start: bytes) -> None:
    negotiation = Negotiation(PERMISSIVE, TRUSTED)
    if start:
        assert negotiation.feed(start) is None
    for chunk in chunks:
        if negotiation.feed(chunk) is not None:
            break


def test_outcomes_of_handed_over_protocols_have_the_same_names() -> None:
    assert all(protocol.value == outcome.value for protocol, outcome in HANDED_OVER.items())
