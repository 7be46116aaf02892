"""Floods of HTTP/2 frames against a replica, with a good client beside them."""

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.attacks.cases import cases
from tests.attacks.good_client import observed
from tests.attacks.raw_client import ACK, Client, Code, Kind, data, frame, rst_stream, window_update
from tests.cluster.client import unique
from tests.cluster.servers import Gantry

_TELEMETRY = "/apache.rocketmq.v2.MessagingService/Telemetry"
_ROUTE = "/apache.rocketmq.v2.MessagingService/QueryRoute"
pytestmark = pytest.mark.anyio

# Seconds of each attack, over several connections at a time.
_SECONDS = 3.0
# Seconds of a connection that is attacked to its end, at most.
_WHOLE = 60.0
_CONNECTIONS = 2

FLOODS: dict[str, bytes] = {
    "WINDOW_UPDATE of a closed stream": window_update(1, 1),
    "WINDOW_UPDATE of the connection": window_update(0, 1),
    "RST_STREAM of a closed stream": rst_stream(1),
    "acknowledged PING": frame(Kind.PING, ACK, 0, bytes(8)),
    "acknowledged SETTINGS": frame(Kind.SETTINGS, ACK),
}


def _attack(port: int, octets: Callable[[Client], bytes], whole: bool) -> list[Code | None]:
    """Send the octets over new connections until the time is up; return the codes of GOAWAY.

    whole: have time for one connection to its end, on a slow machine too.
    """
    codes: list[Code | None] = []
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end or (whole and len(codes) < 2):
        with Client(port, window=0xFFFF) as client:
            client.send(client.call(1, "/no.such/Method", b""))
            client.response(1)
            client.blast(octets(client), _WHOLE if whole and not codes else end - time.monotonic())
            codes.append(client.goaway.code if client.goaway else None)
    return codes


async def _attacked(
    replica: Gantry, octets: Callable[[Client], bytes], growth: float, whole: bool = False
) -> list[Code | None]:
    async with observed(replica.address, replica.pid, unique("good")) as observation:
        attacks = [asyncio.to_thread(_attack, replica.port, octets, whole) for _ in range(_CONNECTIONS)]
        codes = [code for attack in await asyncio.gather(*attacks) for code in attack]
    observation.check(growth=growth)
    return codes


@pytest.mark.parametrize("name", cases(FLOODS, "WINDOW_UPDATE of a closed stream", "acknowledged PING"))
async def test_a_flood_of_frames_that_carry_nothing_ends_with_goaway(replica: Gantry, name: str) -> None:
    octets = FLOODS[name] * 1_000_000
    codes = await _attacked(replica, lambda _: octets, growth=32, whole=True)
    # The last attack of each connection may run out of time.
    assert codes.count(Code.ENHANCE_YOUR_CALM) >= len(codes) - _CONNECTIONS > 0


async def test_a_flood_of_small_requests_delays_others_briefly(replica: Gantry) -> None:
    """Requests are not abuse, but a read of 256 KiB of them has 12,000."""

    def requests(client: Client) -> bytes:
        first = client.headers(3, client.request(_ROUTE), end=True)
        block = client.block(client.request(_ROUTE))
        return first + b"".join(frame(Kind.HEADERS, 0x5, stream, block) for stream in range(5, 400_000, 2))

    await _attacked(replica, requests, growth=64)


async def test_a_message_in_single_bytes_delays_others_briefly(replica: Gantry) -> None:
    octets = data(3, b"x") * 500_000
    await _attacked(
        replica,
        lambda client: client.headers(3, client.request(_TELEMETRY)) + data(3, b"\0\0\x0f\0\0") + octets,
        growth=64,
    )
