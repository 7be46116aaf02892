import pytest

from protocol_negotiation.advertised_address import (
    Advertise,
    AdvertiseRule,
    advertised,
    in_container,
    reachability_warning,
    resolve,
)
from protocol_negotiation.networks import parse_network
from protocol_negotiation.peer import HostPort, Peer


def rule(networks: str, address: str) -> AdvertiseRule:
    return AdvertiseRule(tuple(map(parse_network, networks.split(","))), address)


RULES = (rule("10.1.0.0/16", "inner:9000"), rule("10.0.0.0/8,fd00::/8", "middle"), rule("0.0.0.0/0", "[2001:db8::1]"))


@pytest.mark.parametrize(
    ("client", "advertise", "expected"),
    [
        ("192.0.2.7", Advertise(), "198.51.100.9:8080"),
        ("192.0.2.7", Advertise("mq.example.com"), "mq.example.com:8080"),
        ("192.0.2.7", Advertise("mq.example.com:80"), "mq.example.com:80"),
        ("192.0.2.7", Advertise("2001:db8::5"), "[2001:db8::5]:8080"),
        ("192.0.2.7", Advertise("[2001:db8::5]"), "[2001:db8::5]:8080"),
        ("192.0.2.7", Advertise("[2001:db8::5]:1"), "[2001:db8::5]:1"),
        ("192.0.2.7", Advertise("10.0.0.5"), "10.0.0.5:8080"),
        ("10.1.2.3", Advertise(None, RULES), "inner:9000"),
        ("10.2.2.3", Advertise(None, RULES), "middle:8080"),
        ("fd00::1", Advertise(None, RULES), "middle:8080"),
        ("::ffff:10.1.2.3", Advertise(None, RULES), "inner:9000"),
        ("192.0.2.7", Advertise(None, RULES), "[2001:db8::1]:8080"),
        ("2001:db8::9", Advertise(None, RULES), "198.51.100.9:8080"),
        ("2001:db8::9", Advertise("explicit:1", RULES), "explicit:1"),
        ("10.1.2.3", Advertise("explicit:1", RULES), "inner:9000"),
        ("unix:", Advertise("explicit:1", RULES), "explicit:1"),
        ("10.1.2.3", Advertise(None, (rule("::ffff:10.1.0.0/112", "mapped:1"),)), "mapped:1"),
    ],
)
def test_advertised_address_follows_the_rules_then_the_default_then_the_dialled_address(
    client: str, advertise: Advertise, expected: str
) -> None:
    peer = Peer(HostPort(client, 0), HostPort("198.51.100.9", 8080))
    assert str(advertised(peer, advertise)) == expected


@pytest.mark.parametrize("address", ["", ":80", "a b", "host:x", "host:99999", "[::1", "1::2::3", "http://x"])
def test_invalid_address_raises_value_error(address: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Advertise(address)
    with pytest.raises(ValueError, match=r"."):
        rule("0.0.0.0/0", address)


def test_resolve_keeps_a_unix_socket() -> None:
    assert resolve("unix:/a", 5) == HostPort("unix:/a", 0)


@pytest.mark.parametrize(
    ("listen", "advertise", "contained", "own_addresses", "warning"),
    [
        (":8080", Advertise(), False, (), None),
        (":8080", Advertise(), True, (), "private"),
        ("[::]:8080", Advertise(), True, ("10.0.0.5", "fe80::1%eth0"), "private"),
        ("0.0.0.0:8080", Advertise(), True, ("10.0.0.5", "8.8.8.8"), None),
        ("10.0.0.5:8080", Advertise(), True, (), "private"),
        ("8.8.8.8:8080", Advertise(), True, (), None),
        ("127.0.0.1:8080", Advertise(), True, (), None),
        ("127.0.0.1:8080", Advertise("127.0.0.1"), False, (), None),
        ("unix:/a", Advertise(), True, (), None),
        (":8080", Advertise("mq.example.com"), True, (), None),
        (":8080", Advertise(None, (rule("10.0.0.0/8", "mq"),)), True, (), None),
        (":8080", Advertise("localhost:8080"), False, (), "loopback"),
        (":8080", Advertise("127.0.0.1"), False, (), "loopback"),
        (":8080", Advertise("[::1]:80"), False, (), "loopback"),
        (":8080", Advertise("0.0.0.0"), False, (), "wildcard"),
        (":8080", Advertise("[::]:80"), False, (), "wildcard"),
        (":8080", Advertise("169.254.1.1"), False, (), "link-local"),
        (":8080", Advertise("fe80::1"), False, (), "link-local"),
        (":8080", Advertise("mq:0"), False, (), "port 0"),
        (":8080", Advertise("mq", (rule("10.0.0.0/8", "127.0.0.1"),)), False, (), "loopback"),
    ],
)
def test_reachability_warning_names_the_reason(
    listen: str, advertise: Advertise, contained: bool, own_addresses: tuple[str, ...], warning: str | None
) -> None:
    text = reachability_warning(advertise, HostPort.parse(listen), contained=contained, own_addresses=own_addresses)
    if warning is None:
        assert text is None
    else:
        assert text is not None
        assert warning in text
        assert "`advertise`" in text


def test_in_container_recognizes_kubernetes_docker_and_podman() -> None:
    assert in_container({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, lambda _: False)
    assert in_container({}, lambda path: path == "/.dockerenv")
    assert in_container({}, lambda path: path == "/run/.containerenv")
    assert not in_container({}, lambda _: False)
