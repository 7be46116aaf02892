"""Request attributes as plain values, for evaluators without a proxy."""

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FakeAttributes:
    """Implements `proxy.traffic_rules.matching.Attributes`."""

    code: int
    protocol: str = "remoting"
    listener: str = ""
    server_name: str | None = None
    certificate: str | None = None
    address: str = ""
    client_id: str | None = None
    user: str | None = None
    language: str | None = None
    version: str | None = None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    connection: Hashable = None
    messages: int = 0
    size: int = 0
