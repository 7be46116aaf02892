"""The endpoint's name, and whether its addresses accept connections."""

import asyncio
import socket
from collections.abc import AsyncIterator

from protocol_negotiation.peer import HostPort
from proxy.tools.doctor.connection import Target, Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.session import Diagnosis

# Maximum number of tried addresses.
_MAX = 16


async def lookup(address: HostPort) -> list[HostPort]:
    """Return every address of a name, in the resolver's order; an address is returned as it is.

    Raises OSError, and UnicodeError for an invalid name.
    """
    if address.ip is not None:
        return [address]
    found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(HostPort(str(item[4][0]), address.port) for item in found))


async def check_name(diagnosis: Diagnosis) -> AsyncIterator[Finding]:
    """Look up the name."""
    endpoint = diagnosis.options.endpoint
    try:
        diagnosis.addresses = await lookup(endpoint)
    except (OSError, UnicodeError) as error:
        yield finding("name.unresolved", host=endpoint.host, error=getattr(error, "strerror", None) or error)
        return
    if endpoint.ip is not None:
        yield finding("name.address", host=endpoint.host)
    else:
        hosts = ", ".join(address.host for address in diagnosis.addresses)
        yield finding("name.resolved", host=endpoint.host, addresses=hosts)


async def check_addresses(diagnosis: Diagnosis) -> AsyncIterator[Finding]:
    """Connect to every address; later checks use the first that accepts."""
    trials = [(address, await _dial(diagnosis, address)) for address in diagnosis.addresses[:_MAX]]
    diagnosis.address = next((address for address, outcome in trials if isinstance(outcome, float)), None)
    for number, (address, outcome) in enumerate(trials):
        if isinstance(outcome, float):
            yield finding("tcp.accepted", address=address, milliseconds=outcome)
        elif number == 0 and diagnosis.address is not None:
            yield finding("tcp.first_refused", address=address, error=outcome)
        else:
            yield finding("tcp.refused", address=address, error=outcome)


async def _dial(diagnosis: Diagnosis, address: HostPort) -> float | str:
    """Return the milliseconds until the connection, or the reason of its failure."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with Target(address, diagnosis.options.endpoint.host, diagnosis.options.timeout).opened():
            return 1000 * (loop.time() - began)
    except Unreachable as error:
        return str(error)
