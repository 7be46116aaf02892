"""Ports for servers that cannot choose one themselves."""

import random
import socket

HOST = "127.0.0.1"
# Below the range that outgoing connections, and whoever binds port 0, take theirs from: nobody takes one
# between here and the server's start.
_RANGE = range(12_000, 32_000)
_given: set[int] = set()


def free_port(many: int = 1) -> int:
    """A port that nobody listens on, and `many` - 1 that follow it; none is given twice."""
    while True:
        port = random.choice(_RANGE)
        wanted = range(port, port + many)
        if _given.isdisjoint(wanted) and all(map(_is_free, wanted)):
            _given.update(wanted)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
