import pytest

from protocol_negotiation.advertised_address import Advertise, AdvertiseRule
from protocol_negotiation.networks import parse_network
from proxy.core.advertised_listeners import AdvertisedListener, ListenerRoutes
from proxy.core.context import Context
from remoting.codes import RequestCode, version_ordinal
from tests.proxy.fakes import FakeChannel, peer
from tests.proxy.messages import java, request

NEW_JAVA = version_ordinal(4, 9, 5)
OLD_JAVA = version_ordinal(4, 9, 4)
RULES = (AdvertiseRule((parse_network("10.0.0.0/8"),), "inside.test:1"),)

MAIN = AdvertisedListener(8080, Advertise(), None, "main")
OWN = AdvertisedListener(8081, Advertise(), "broker-a", "own")
FIXED = AdvertisedListener(8080, Advertise("proxy.test:9000"), None, "main")
FIXED_OWN = AdvertisedListener(8081, Advertise("proxy.test:9001"), "broker-a", "own")
RULED = AdvertisedListener(8080, Advertise("proxy.test:9000", RULES), None, "main")
HOST = AdvertisedListener(8080, Advertise("proxy.test"), None, "main")


def address_for(
    *listeners: AdvertisedListener,
    broker: str = "broker-a",
    version: int = NEW_JAVA,
    language: str = "JAVA",
    listener: str = "main",
    address: str = "192.0.2.7:50000",
    local: str = "198.51.100.9:8080",
) -> str:
    command = java(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t"), version)
    command.header["language"] = language
    current = next((item for item in listeners if item.name == listener), None)
    client = FakeChannel(peer(address, local, listener=listener, broker=None if current is None else current.broker))
    return ListenerRoutes(listeners).address_for(Context(client, command, None, 0.0), broker)


@pytest.mark.parametrize(
    ("listeners", "listener", "local", "answer"),
    [
        ((), "main", "198.51.100.9:8080", "198.51.100.9:8080"),
        ((MAIN,), "main", "198.51.100.9:8080", "198.51.100.9:8080"),
        ((FIXED,), "main", "198.51.100.9:8080", "proxy.test:9000"),
        ((HOST,), "main", "198.51.100.9:8080", "proxy.test:8080"),
        # Behind a PROXY protocol load balancer: the address that the client connected to, not the bound one.
        ((MAIN,), "main", "203.0.113.5:443", "203.0.113.5:443"),
        ((MAIN,), "main", "[2001:db8::9]:8080", "[2001:db8::9]:8080"),
        # Connected to a dedicated listener, it receives the shared one.
        ((MAIN, OWN), "own", "198.51.100.9:8081", "198.51.100.9:8080"),
        ((MAIN, OWN), "own", "[2001:db8::9]:8081", "[2001:db8::9]:8080"),
        ((FIXED, OWN), "own", "198.51.100.9:8081", "proxy.test:9000"),
        # Without a shared listener.
        ((OWN,), "own", "198.51.100.9:8081", "198.51.100.9:8081"),
    ],
)
def test_clients_that_name_brokers_receive_the_shared_listener(
    listeners: tuple[AdvertisedListener, ...], listener: str, local: str, answer: str
) -> None:
    assert address_for(*listeners, listener=listener, local=local) == answer
    assert address_for(*listeners, listener=listener, local=local, broker="broker-b") == answer


@pytest.mark.parametrize(("language", "version"), [("JAVA", OLD_JAVA), ("JAVA", 0), ("GO", NEW_JAVA), ("CPP", 479)])
@pytest.mark.parametrize(
    ("listeners", "listener", "local", "own", "other"),
    [
        ((MAIN,), "main", "198.51.100.9:8080", "198.51.100.9:8080", "198.51.100.9:8080"),
        ((MAIN, OWN), "main", "198.51.100.9:8080", "198.51.100.9:8081", "198.51.100.9:8080"),
        ((MAIN, OWN), "own", "198.51.100.9:8081", "198.51.100.9:8081", "198.51.100.9:8080"),
        ((FIXED, FIXED_OWN), "main", "198.51.100.9:8080", "proxy.test:9001", "proxy.test:9000"),
        ((FIXED, FIXED_OWN), "own", "198.51.100.9:8081", "proxy.test:9001", "proxy.test:9000"),
        ((MAIN, OWN), "main", "[2001:db8::9]:8080", "[2001:db8::9]:8081", "[2001:db8::9]:8080"),
    ],
)
def test_clients_that_name_no_broker_receive_its_dedicated_listener(
    listeners: tuple[AdvertisedListener, ...],
    listener: str,
    local: str,
    own: str,
    other: str,
    language: str,
    version: int,
) -> None:
    answers = [
        address_for(*listeners, broker=broker, language=language, version=version, listener=listener, local=local)
        for broker in ("broker-a", "broker-b")
    ]
    assert answers == [own, other]


@pytest.mark.parametrize(
    ("address", "answer"), [("10.1.2.3:50000", "inside.test:1"), ("192.0.2.7:50000", "proxy.test:9000")]
)
def test_advertise_rules_apply_to_their_networks(address: str, answer: str) -> None:
    assert address_for(RULED, address=address) == answer


# Advertised addresses for gRPC clients: None if it is the one they connected to.


@pytest.mark.parametrize(
    ("listener", "address", "expected"),
    [
        (MAIN, "192.0.2.7:50000", None),
        (FIXED, "192.0.2.7:50000", "proxy.test:9000"),
        (HOST, "192.0.2.7:50000", "proxy.test:8080"),
        (RULED, "10.1.2.3:50000", "inside.test:1"),
        (RULED, "192.0.2.7:50000", "proxy.test:9000"),
        (AdvertisedListener(8080, Advertise(None, RULES), None, "main"), "192.0.2.7:50000", None),
    ],
)
def test_advertised_address_is_the_configured_one(
    listener: AdvertisedListener, address: str, expected: str | None
) -> None:
    advertised = ListenerRoutes([listener]).advertised_address(peer(address, listener="main"))
    assert (None if advertised is None else str(advertised)) == expected


def test_unknown_listener_advertises_nothing() -> None:
    assert ListenerRoutes([FIXED]).advertised_address(peer(listener="elsewhere")) is None
