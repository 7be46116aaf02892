import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol_negotiation.networks import contains, parse_network
from protocol_negotiation.peer import HostPort, Peer, socket_address


@pytest.mark.parametrize(
    ("text", "host", "port", "written"),
    [
        ("broker-a:10911", "broker-a", 10911, "broker-a:10911"),
        ("my_host.example.com:1", "my_host.example.com", 1, "my_host.example.com:1"),
        ("10.0.0.1:65535", "10.0.0.1", 65535, "10.0.0.1:65535"),
        (":8080", "", 8080, ":8080"),
        (" 127.0.0.1:0 ", "127.0.0.1", 0, "127.0.0.1:0"),
        ("[::1]:80", "::1", 80, "[::1]:80"),
        ("[2001:DB8:0:0::1]:80", "2001:db8::1", 80, "[2001:db8::1]:80"),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80, "[fe80::1%eth0]:80"),
        ("[::ffff:10.1.2.3]:80", "10.1.2.3", 80, "10.1.2.3:80"),
        ("unix:/run/gantry.sock", "unix:/run/gantry.sock", 0, "unix:/run/gantry.sock"),
    ],
)
def test_host_port_is_parsed_and_written(text: str, host: str, port: int, written: str) -> None:
    address = HostPort.parse(text)
    assert (address.host, address.port) == (host, port)
    assert str(address) == written
    assert HostPort.parse(written) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        "host:x",
        "host:65536",
        "host:-1",
        "host:٣",
        "::1:80",
        "[::1]",
        "[::1:80",
        "[nonsense]:80",
        "[10.0.0.1]:80",
        "a b:80",
        "http://host:80",
        "unix:",
    ],
)
def test_parse_errors_contain_the_text(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        HostPort.parse(text)
    assert repr(text) in str(raised.value)


@given(st.text(max_size=20))
def test_parse_of_garbage_raises_only_value_errors(text: str) -> None:
    try:
        address = HostPort.parse(text)
    except ValueError:
        return
    assert HostPort.parse(str(address)) == address


def test_a_port_out_of_range_raises_value_error() -> None:
    with pytest.raises(ValueError, match="65536"):
        HostPort("a", 65536)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("10.0.0.1", 5), HostPort("10.0.0.1", 5)),
        (("::1", 5, 0, 0), HostPort("::1", 5)),
        (("::ffff:10.0.0.1", 5, 0, 0), HostPort("10.0.0.1", 5)),
        ("/run/x.sock", HostPort("unix:/run/x.sock", 0)),
        (b"\0abstract", HostPort("unix:@abstract", 0)),
        ("", HostPort("unix:", 0)),
        (None, HostPort("unix:", 0)),
    ],
)
def test_socket_address_of_all_families(address: object, expected: HostPort) -> None:
    assert socket_address(address) == expected


def test_unix_sockets_have_a_path_and_no_ip() -> None:
    assert HostPort("unix:/a", 0).unix_path == "/a"
    assert HostPort("unix:", 0).unix_path is None
    assert HostPort("unix:", 0).is_unix
    assert HostPort("unix:/a", 0).ip is None
    assert HostPort("a", 0).unix_path is None


def test_ip_omits_the_scope() -> None:
    assert str(HostPort("fe80::1%eth0", 1).ip) == "fe80::1"
    assert HostPort("name", 1).ip is None


def test_a_peer_is_hashable() -> None:
    peer = Peer(HostPort("a", 1), HostPort("b", 2), tlvs={1: b"x"})
    assert len({peer, peer}) == 1


@pytest.mark.parametrize(
    ("text", "address", "inside"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.1.2.3/8", "10.9.9.9", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("::ffff:10.0.0.0/104", "10.1.2.3", True),
        ("::/0", "10.1.2.3", False),
        ("fd00::/8", "fd12::1", True),
        ("::1", "::1", True),
        ("0.0.0.0/0", "name", False),
    ],
)
def test_a_network_contains_its_addresses(text: str, address: str, inside: bool) -> None:
    assert contains((parse_network(text),), HostPort(address, 1).ip) is inside


def test_network_errors_contain_the_text() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/99"):
        parse_network("10.0.0.0/99")
