"""Ports for servers that cannot choose one themselves."""

import os
import random
import socket

HOST = "127.0.0.1"
# Below the ephemeral range, so that neither an outgoing connection nor a bind to port 0 takes a port between the call
# and the server's start. Each process of pytest-xdist has a slice of its own.
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_SLICE = 20_000 // _WORKERS
_RANGE = range(12_000 + _WORKER * _SLICE, 12_000 + (_WORKER + 1) * _SLICE)
_given: set[int] = set()


def free_port(many: int = 1) -> int:
    """Return the first of `many` consecutive free ports; a process never gets the same port twice."""
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
