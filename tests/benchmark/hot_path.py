"""One forwarded request inside one process, without sockets: the cost of the code itself.

    python -m tests.benchmark.hot_path [--seconds 3] [--profile]

A client's frames go into its channel; a fake broker answers each at once. Prints the CPU time per request of
SEND_MESSAGE_V2 with 1 and with 32 frames per read.
"""

import argparse
import asyncio
import cProfile
import pstats
import time

import orjson
import uvloop

from protocol_negotiation.peer import HostPort, Peer
from proxy.app import App
from proxy.backends.cluster.backend import ClusterBackend
from proxy.settings.loading import load
from remoting.connection import RemotingConnection
from remoting.frame import FrameDecoder
from remoting.requests import REQUESTS
from remoting.routes import Replicas
from tests.benchmark.in_process import PROPERTIES, Transport, frame

_BROKER = "127.0.0.1:10911"
_BODY = b"x" * 300
_FIELDS = {
    **dict(zip("abcdefghijklm", ("producer", "topic", "TBW102", "4", "1", "0", "1795254240000", "0"), strict=False)),
    "i": PROPERTIES,
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}


def _request(opaque: int) -> bytes:
    header = {"code": 310, "extFields": _FIELDS, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 493}
    return frame({**header, "serializeTypeCurrentRPC": "JSON"}, _BODY)


class _Broker:
    """Answers every send at once."""

    def __init__(self) -> None:
        self.connection: RemotingConnection
        self._decoder = FrameDecoder()

    def take(self, data: bytes) -> None:
        answers = []
        for received in self._decoder.feed(data):
            opaque = orjson.loads(received[1])["opaque"]
            fields = {
                "msgId": "7F00000100002A9F0000000000001234",
                "queueId": "1",
                "queueOffset": "12",
                "MSG_REGION": "r",
            }
            answers.append(frame({"code": 0, "flag": 1, "language": "JAVA", "opaque": opaque, "extFields": fields}))
        asyncio.get_running_loop().call_soon(self.connection.data_received, b"".join(answers))


async def _measure(width: int, seconds: float, profile: bool) -> tuple[float, float]:
    """Return CPU time per request in µs: in all, and of the fakes."""
    app = App(load(None, {"cluster": {"namesrv": "127.0.0.1:9876"}, "listen": ":0"}))
    assert isinstance(app.backend, ClusterBackend)
    app.backend._table.brokers = {"broker-a": Replicas("broker-a", "c", {0: _BROKER})}
    done = asyncio.Event()
    left = 0

    def answered(data: bytes) -> None:
        nonlocal left
        left -= len(decoder.feed(data))
        if left == 0:
            done.set()

    decoder = FrameDecoder()
    channel = app.remoting.accept(Peer(HostPort("10.0.0.1", 50000), HostPort("10.0.0.2", 8080)))
    channel.connection_made(Transport(answered))  # type: ignore[arg-type]
    broker = _Broker()
    link = app.backend._server_for(_BROKER, channel, REQUESTS[310])
    broker.connection = RemotingConnection(app._wheel, lambda *_: None, lambda _: None, name=_BROKER)
    broker.connection.connection_made(Transport(broker.take))  # type: ignore[arg-type]
    link.connection = broker.connection
    chunk = b"".join(map(_request, range(width)))
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    count, begin = 0, time.process_time()
    while time.process_time() - begin < seconds:
        left = width
        done.clear()
        channel.data_received(chunk)
        await done.wait()
        app._wheel.advance()
        count += width
    spent = time.process_time() - begin
    if profile:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(28)
    return spent / count * 1e6, _stand_ins(broker, width)


def _stand_ins(broker: _Broker, width: int) -> float:
    """Return the cost of fake broker and client alone, µs per request."""
    chunk = b"".join(map(_request, range(width)))
    rounds = max(1, 20_000 // width)
    broker._decoder = FrameDecoder()
    loop = asyncio.get_running_loop()
    begin = time.process_time()
    for _ in range(rounds):
        for received in broker._decoder.feed(chunk):
            orjson.loads(received[1])
            frame({"code": 0, "flag": 1, "language": "JAVA", "opaque": 1, "extFields": {"queueId": "1"}})
        loop.time()
    return (time.process_time() - begin) / (rounds * width) * 1e6


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for width in (1, 32):
        whole, own = uvloop.run(_measure(width, options.seconds, options.profile))
        print(f"{width:3} frames a read: {whole - own:6.2f} µs per request ({whole:.2f} with the stand-ins)")


if __name__ == "__main__":
    main()
