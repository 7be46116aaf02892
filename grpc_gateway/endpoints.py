"""Addresses in the form of the v2 contract."""

from ipaddress import IPv6Address, ip_address

from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2.definition_pb2 import Address, AddressScheme, Endpoints


def endpoints_of(address: HostPort) -> Endpoints:
    """Return the endpoints with this single address."""
    return Endpoints(scheme=address_scheme(address.host), addresses=(Address(host=address.host, port=address.port),))


def address_scheme(host: str) -> AddressScheme:
    """Return the scheme of a host: IPv4, IPv6 or domain name."""
    try:
        address = ip_address(host)
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv6 if isinstance(address, IPv6Address) else AddressScheme.IPv4
