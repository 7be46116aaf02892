"""A flood of equal bytes over several connections, in a process of its own.

    python -m tests.attacks.flood PORT SOURCE CONNECTIONS FILE

Sends the file's bytes again and again from the source address, and discards the answers, until its input ends and an
answer has arrived, for which a busy machine may need more time. Prints the number of received bytes at the end.
"""

import contextlib
import math
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from remoting.codes import RequestCode
from remoting.frame import encode_prefix
from tests.attacks.good_client import send_fields
from tests.paths import ROOT


def frame(code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    """Return the frame of a request."""
    header = {"code": code, "opaque": 1, "flag": 0, "language": "JAVA", "version": 493, "extFields": fields or {}}
    raw = orjson.dumps(header)
    return encode_prefix(0, len(raw), len(body)) + raw + body


def send_frame(topic: str) -> bytes:
    """Return the frame of a SEND_MESSAGE_V2 with a body of 300 bytes."""
    return frame(RequestCode.SEND_MESSAGE_V2, send_fields(topic), b"x" * 300)


def _heartbeat() -> bytes:
    consumers = [{"groupName": f"g{number}", "subscriptionDataSet": []} for number in range(10)]
    return orjson.dumps({"clientID": "flood", "producerDataSet": [], "consumerDataSet": consumers})


# Seconds in which the first answer arrives, at most.
_ANSWER_SECONDS = 60.0
# One frame of each flood.
FLOODS = {
    "sends": send_frame("flood"),
    "heartbeats": frame(RequestCode.HEART_BEAT, body=_heartbeat()),
    "consumer lists": frame(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}),
    "unknown codes": frame(29_999),
    "fastjson's dialect": frame(RequestCode.HEART_BEAT, body=b"{clientID:'attacker',odd:[" + b"{a:1}," * 2500 + b"]}"),
}


@dataclass
class Flood:
    """A running flood; `received` is the number of received bytes once it has ended."""

    received: int = 0


@contextmanager
def flooding(
    directory: Path, port: int, octets: bytes, connections: int = 1, source: str = "127.0.0.1"
) -> Iterator[Flood]:
    """Run a flood inside the context, once its connections are open."""
    file = directory / "flood"
    file.write_bytes(octets)
    command = [sys.executable, "-m", __name__, str(port), source, str(connections), str(file)]
    flood = Flood()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield flood
        finally:
            process.stdin.close()
            flood.received = int(process.stdout.read() or 0)


class _Sender:
    """One connection of the flood."""

    def __init__(self, port: int, source: str, octets: memoryview) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
        self.socket.setblocking(False)
        self.octets, self.position, self.received = octets, 0, 0

    def proceed(self, events: int) -> None:
        """Read and write what is possible. Raises OSError."""
        if events & selectors.EVENT_READ:
            count = len(self.socket.recv(1 << 18))
            if not count:
                raise ConnectionResetError
            self.received += count
        if events & selectors.EVENT_WRITE:
            self.position += self.socket.send(self.octets[self.position :])
            if self.position == len(self.octets):
                self.position = 0


def main(port: int, source: str, connections: int, file: Path) -> None:
    """Flood until the standard input has ended and an answer has arrived."""
    octets = memoryview(file.read_bytes())
    senders = [_Sender(port, source, octets) for _ in range(connections)]
    selector = selectors.DefaultSelector()
    for sender in senders:
        selector.register(sender.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, sender)
    selector.register(sys.stdin, selectors.EVENT_READ)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    received, deadline = 0, math.inf
    while deadline == math.inf or (not received and time.monotonic() < deadline):
        for key, events in selector.select(1.0):
            if not isinstance(key.data, _Sender):
                selector.unregister(sys.stdin)
                deadline = time.monotonic() + _ANSWER_SECONDS
                continue
            try:
                key.data.proceed(events)
            except BlockingIOError:
                continue
            except OSError:
                # The server has closed the connection.
                with contextlib.suppress(KeyError):
                    selector.unregister(key.data.socket)
        received = sum(sender.received for sender in senders)
    sys.stdout.write(str(received))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
