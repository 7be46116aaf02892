"""The ports that the workers of a replica listen on."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from protocol_negotiation.peer import HostPort
from proxy.settings.file_source import ConfigError
from proxy.settings.model import Settings

_LISTEN = "listen"
# Hosts that stand for every address of IPv6 and IPv4.
_DUAL_STACK = {"", "::"}


@dataclass(frozen=True, slots=True)
class _Ports:
    """Ports of one setting: of all workers together, or one for each worker."""

    key: str
    first: HostPort
    number: int = 1

    @property
    def last_port(self) -> int:
        return self.first.port + self.number - 1

    def __str__(self) -> str:
        each = f" to {self.last_port}, one for each worker" if self.number > 1 else ""
        return f"{self.key} ({self.first}{each})"

    def overlaps(self, other: "_Ports") -> bool:
        """Whether both have a port of one host."""
        shared = self.first.port <= other.last_port and other.first.port <= self.last_port
        return shared and _same_host(self.first, other.first)


def check_ports(settings: Settings) -> None:
    """Raise ConfigError if two settings of several workers have the same port, or a worker has none."""
    ports = [item for item in _ports(settings) if item.first.port]
    for item in ports:
        if item.last_port > 0xFFFF:
            raise ConfigError(f"{item.key}: {item.first} leaves no port for the last of {item.number} workers")
    for one, other in combinations(ports, 2):
        # Two listeners are the business of the operating system, as with one process.
        if not one.key == other.key == _LISTEN and one.overlaps(other):
            raise ConfigError(f"{one} and {other} overlap: change one of them")


def _ports(settings: Settings) -> Iterator[_Ports]:
    for item in settings.listen:
        yield _Ports(_LISTEN, HostPort.parse(item.address))
    if settings.metrics_listen is not None:
        yield _Ports("metrics_listen", HostPort.parse(settings.metrics_listen))
    if settings.embedded.directory is not None and settings.embedded.listen is not None:
        yield _Ports("embedded.listen", HostPort.parse(settings.embedded.listen))
    for key, address in (("admin.listen", settings.admin.address), ("admin.grpc", settings.admin.grpc_address)):
        if address is not None:
            yield _Ports(key, address, settings.workers)


def _same_host(one: HostPort, other: HostPort) -> bool:
    """Whether both listen on an address in common; names are not resolved."""
    if one.host == other.host or {one.host, other.host} & _DUAL_STACK:
        return True
    if one.ip is not None and other.ip is not None and one.ip.version != other.ip.version:
        return False
    named_loopback = "localhost" in (one.host, other.host) and one.is_local and other.is_local
    return named_loopback or one.is_wildcard or other.is_wildcard
