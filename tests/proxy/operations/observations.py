"""Observations of requests, for tests."""

from typing import Any

from protocol_negotiation.peer import HostPort, Peer
from proxy.core.events import Observation

_PEER = Peer(HostPort("192.0.2.7", 50000), HostPort("192.0.2.7", 50000))


def observation(code: str = "SEND_MESSAGE_V2", ok: bool = True, seconds: float = 0.002, **fields: Any) -> Observation:
    """Return an observed remoting request with these fields."""
    made = Observation("remoting", code, 0 if ok else 1, ok, _PEER, None, 0.0, seconds)
    for name, value in fields.items():
        setattr(made, name, value)
    return made
