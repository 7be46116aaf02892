"""Which address a client is told to come back to."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

from protocol_negotiation.networks import Network, contains, normalised_network
from protocol_negotiation.peer import HostPort, Peer

_WILDCARDS = ("", "0.0.0.0", "::")


@lru_cache(maxsize=1024)
def resolve(address: str, port: int) -> HostPort:
    """``host:port`` as it stands, or a host alone with `port`; raises ValueError naming the text."""
    address = address.strip()
    bracketed = address.startswith("[") and address.endswith("]")
    try:
        return HostPort(str(ip_address(address[1:-1] if bracketed else address)), port)
    except ValueError:
        parsed = HostPort.parse(address if ":" in address else f"{address}:{port}")
    if not parsed.host:
        raise ValueError(f"an advertised address needs a host: {address!r}")
    return parsed


@dataclass(frozen=True, slots=True)
class AdvertiseRule:
    """Clients from `networks` are told `address`: ``host:port``, or a host alone for the port they dialled."""

    networks: tuple[Network, ...]
    address: str

    def __post_init__(self) -> None:
        resolve(self.address, 0)
        object.__setattr__(self, "networks", tuple(map(normalised_network, self.networks)))


@dataclass(frozen=True, slots=True)
class Advertise:
    """What a listener tells its clients: the first matching rule, else `address`, else what the client dialled.

    Raises ValueError for an address that is neither ``host:port`` nor a host.
    """

    address: str | None = None
    rules: tuple[AdvertiseRule, ...] = ()

    def __post_init__(self) -> None:
        if self.address is not None:
            resolve(self.address, 0)


def advertised(peer: Peer, advertise: Advertise) -> HostPort:
    """The address that `peer` is told."""
    client = peer.address.ip if advertise.rules else None
    for rule in advertise.rules:
        if contains(rule.networks, client):
            return resolve(rule.address, peer.local.port)
    if advertise.address is not None:
        return resolve(advertise.address, peer.local.port)
    return peer.local


def in_container(environ: Mapping[str, str], exists: Callable[[str], bool] = os.path.exists) -> bool:
    """Whether this process runs in a container: Kubernetes' environment, or the marker of Docker or Podman."""
    return "KUBERNETES_SERVICE_HOST" in environ or any(map(exists, ("/.dockerenv", "/run/.containerenv")))


def unreachable(
    advertise: Advertise, listen: HostPort, *, contained: bool = False, own_addresses: Iterable[str] = ()
) -> str | None:
    """A warning for start-up when clients would be told an address that they cannot reach, else None.

    `contained`: see `in_container`. `own_addresses`: this host's IP addresses where known; one that is public
    silences the warning about a container's private address.
    """
    if listen.is_unix or _is_loopback(listen):
        return None
    for address in (*(rule.address for rule in advertise.rules), advertise.address):
        complaint = _complaint(resolve(address, listen.port)) if address is not None else None
        if complaint is not None:
            return f"advertise: clients are told {address}, {complaint}; set `advertise` to an address they can dial"
    if advertise.address is None and not advertise.rules and contained and _is_private(listen, own_addresses):
        return (
            f"advertise: {listen} listens inside a container and `advertise` is not set, so clients are told the "
            "container's private address, which nobody outside its network reaches; set `advertise` to the address "
            "that clients dial"
        )
    return None


def _complaint(told: HostPort) -> str | None:
    return next((reason for wrong, reason in _COMPLAINTS if wrong(told)), None)


def _is_loopback(address: HostPort) -> bool:
    return address.host == "localhost" or (address.ip is not None and address.ip.is_loopback)


def _is_private(listen: HostPort, own_addresses: Iterable[str]) -> bool:
    if listen.host not in _WILDCARDS:
        return listen.ip is not None and listen.ip.is_private
    return not any(ip_address(own.partition("%")[0]).is_global for own in own_addresses)


# What makes an explicit address useless to clients elsewhere, and how the warning words it. Read by `unreachable`.
_COMPLAINTS: tuple[tuple[Callable[[HostPort], bool], str], ...] = (
    (lambda told: told.host in _WILDCARDS, "a wildcard, which is no address to dial"),
    (_is_loopback, "a loopback address, which every client takes for itself"),
    (lambda told: told.ip is not None and told.ip.is_link_local, "a link-local address, which ends at the next router"),
    (lambda told: told.port == 0 and not told.is_unix, "port 0, which nobody can dial"),
)
