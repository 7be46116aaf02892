"""IP networks of trust lists and address rules."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

IpAddress = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# RFC 4291 section 2.5.5.2: ::ffff:0:0/96 contains the IPv4 addresses.
_MAPPED_BITS = 96


def parse_network(text: str) -> Network:
    """Parse ``10.0.0.0/8``, ``fd00::/8`` or a single address; host bits may be set.

    A network of IPv4-mapped IPv6 addresses becomes the IPv4 network. Raises ValueError with the text.
    """
    try:
        network = ip_network(text.strip(), strict=False)
    except ValueError as error:
        raise ValueError(f"not an IP network: {text!r}") from error
    return normalised_network(network)


def normalised_network(network: Network) -> Network:
    """Return the IPv4 network of IPv4-mapped IPv6 addresses, else `network` itself."""
    if isinstance(network, IPv6Network) and network.prefixlen >= _MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
    return network


def contains(networks: Iterable[Network], address: IpAddress | None) -> bool:
    """Return whether one of `networks`, of the same family, contains `address`; False for None."""
    return address is not None and any(address in network for network in networks)
