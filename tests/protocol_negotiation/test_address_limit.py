"""The bound on open connections of one source address."""

import asyncio
import gc

import pytest

from protocol_negotiation.address_limit import AddressLimit, source_of
from protocol_negotiation.peer import HostPort

CLIENT = HostPort("192.0.2.7", 40_000)


class FakeTransport(asyncio.BaseTransport):
    """A transport that is closed by setting `closing`."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing


class FakeClock:
    """A clock in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def admitted(limit: AddressLimit, count: int, address: HostPort = CLIENT) -> list[FakeTransport]:
    transports = [FakeTransport() for _ in range(count)]
    assert all(limit.admit(transport, address) for transport in transports)
    return transports


def test_connections_up_to_the_limit_are_admitted() -> None:
    limit = AddressLimit(3, FakeClock())
    kept = admitted(limit, 3)
    assert not limit.admit(FakeTransport(), HostPort(CLIENT.host, 50_000))
    assert limit.admit(kept[0], HostPort("192.0.2.8", 40_000))


def test_collected_transports_are_forgotten_with_their_address() -> None:
    limit = AddressLimit(2, FakeClock())
    kept = admitted(limit, 2)
    kept.pop()
    gc.collect()
    kept += admitted(limit, 1)
    assert len(limit) == 1
    kept.clear()
    gc.collect()
    assert len(limit) == 0


def test_closed_transports_are_swept_at_intervals() -> None:
    clock = FakeClock()
    limit = AddressLimit(2, clock)
    kept = admitted(limit, 2)
    newcomer = FakeTransport()
    assert not limit.admit(newcomer, CLIENT)
    kept[0].closing = True
    assert not limit.admit(newcomer, CLIENT)
    clock.now += 0.2
    assert limit.admit(newcomer, CLIENT)
    assert not limit.admit(FakeTransport(), CLIENT)


def test_zero_is_unlimited() -> None:
    limit = AddressLimit(0, FakeClock())
    assert admitted(limit, 100)
    assert len(limit) == 0


@pytest.mark.parametrize("address", [HostPort("unix:", 0), HostPort("unix:/run/proxy", 0)])
def test_unix_sockets_are_exempt(address: HostPort) -> None:
    limit = AddressLimit(1, FakeClock())
    assert admitted(limit, 3, address)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.7", "::ffff:192.0.2.7", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_ipv6_addresses_count_with_their_network(one: str, other: str, same: bool) -> None:
    assert (source_of(HostPort(one, 1)) == source_of(HostPort(other, 2))) is same
