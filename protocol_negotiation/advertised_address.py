"""Advertised addresses: the addresses that clients get in routes."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

from protocol_negotiation.networks import Network, contains, normalised_network
from protocol_negotiation.peer import HostPort, Peer


@lru_cache(maxsize=1024)
def resolve(address: str, port: int) -> HostPort:
    """Parse ``host:port``, or a host alone, which gets `port`. Raises ValueError with the text."""
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
    """Address for clients from `networks`: ``host:port``, or a host alone, which gets the port that they dialled."""

    networks: tuple[Network, ...]
    address: str

    def __post_init__(self) -> None:
        resolve(self.address, 0)
        object.__setattr__(self, "networks", tuple(map(normalised_network, self.networks)))


@dataclass(frozen=True, slots=True)
class Advertise:
    """Advertised address of a listener: that of the first matching rule, else `address`, else the one dialled.

    Raises ValueError for an address that is neither ``host:port`` nor a host.
    """

    address: str | None = None
    rules: tuple[AdvertiseRule, ...] = ()

    def __post_init__(self) -> None:
        if self.address is not None:
            resolve(self.address, 0)


def advertised(peer: Peer, advertise: Advertise) -> HostPort:
    """Return the address that is advertised to `peer`."""
    client = peer.address.ip if advertise.rules else None
    for rule in advertise.rules:
        if contains(rule.networks, client):
            return resolve(rule.address, peer.local.port)
    if advertise.address is not None:
        return resolve(advertise.address, peer.local.port)
    return peer.local


def in_container(environ: Mapping[str, str], exists: Callable[[str], bool] = os.path.exists) -> bool:
    """Return whether this process runs in a container, as shown by Kubernetes, Docker or Podman."""
    return "KUBERNETES_SERVICE_HOST" in environ or any(map(exists, ("/.dockerenv", "/run/.containerenv")))


def reachability_warning(
    advertise: Advertise, listen: HostPort, *, contained: bool = False, own_addresses: Iterable[str] = ()
) -> str | None:
    """Return a warning if the advertised address is unreachable for clients, else None.

    `contained` is the result of `in_container`. `own_addresses` are this host's IP addresses, if known; a public one
    suppresses the warning about a container's private address.
    """
    if listen.is_local:
        return None
    for address in (*(rule.address for rule in advertise.rules), advertise.address):
        problem = _problem(resolve(address, listen.port)) if address is not None else None
        if problem is not None:
            return f"advertise: {address} is {problem}; set `advertise` to an address that clients can dial"
    if advertise.address is None and not advertise.rules and contained and _is_private(listen, own_addresses):
        return (
            f"advertise: {listen} listens inside a container and `advertise` is not set, so clients get the "
            "container's private address, which is unreachable outside its network; set `advertise` to the address "
            "that clients dial"
        )
    return None


def _problem(address: HostPort) -> str | None:
    return next((problem for applies, problem in _PROBLEMS if applies(address)), None)


def _is_private(listen: HostPort, own_addresses: Iterable[str]) -> bool:
    if not listen.is_wildcard:
        return listen.ip is not None and listen.ip.is_private
    return not any(ip_address(address.partition("%")[0]).is_global for address in own_addresses)


# Reasons why clients on other hosts cannot use an explicit address.
_PROBLEMS: tuple[tuple[Callable[[HostPort], bool], str], ...] = (
    (lambda address: address.is_wildcard, "a wildcard address, which cannot be dialled"),
    (lambda address: address.is_local and not address.is_unix, "a loopback address, which is each client's own host"),
    (
        lambda address: address.ip is not None and address.ip.is_link_local,
        "a link-local address, which is unreachable beyond a router",
    ),
    (lambda address: address.port == 0 and not address.is_unix, "an address with port 0, which cannot be dialled"),
)
