"""The endpoint's name, and whether its addresses accept connections."""

import asyncio
import socket
from collections.abc import AsyncIterator

from protocol_negotiation.peer import HostPort
from proxy.tools.doctor.connection import Line, Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.session import Visit

# Addresses of a name that are tried, at most.
_MAX = 16


async def lookup(address: HostPort) -> list[HostPort]:
    """Every address of a name, in the resolver's order; one that is an address already as it is. Raises OSError,
    and UnicodeError where no name can be like that.
    """
    if address.ip is not None:
        return [address]
    found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(HostPort(str(item[4][0]), address.port) for item in found))


async def resolution(visit: Visit) -> AsyncIterator[Finding]:
    """Look the name up."""
    endpoint = visit.options.endpoint
    try:
        visit.addresses = await lookup(endpoint)
    except (OSError, UnicodeError) as error:
        yield finding("name.unresolved", host=endpoint.host, error=getattr(error, "strerror", None) or error)
        return
    if endpoint.ip is not None:
        yield finding("name.address", host=endpoint.host)
    else:
        hosts = ", ".join(address.host for address in visit.addresses)
        yield finding("name.resolved", host=endpoint.host, addresses=hosts)


async def reach(visit: Visit) -> AsyncIterator[Finding]:
    """Connect to every address; the first that accepts is looked at from here on."""
    trials = [(address, await _dial(visit, address)) for address in visit.addresses[:_MAX]]
    visit.address = next((address for address, outcome in trials if isinstance(outcome, float)), None)
    for number, (address, outcome) in enumerate(trials):
        if isinstance(outcome, float):
            yield finding("tcp.accepted", address=address, milliseconds=outcome)
        elif number == 0 and visit.address is not None:
            yield finding("tcp.first_refused", address=address, error=outcome)
        else:
            yield finding("tcp.refused", address=address, error=outcome)


async def _dial(visit: Visit, address: HostPort) -> float | str:
    """Milliseconds until a connection was there, or why there was none."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with Line(address, visit.options.endpoint.host, visit.options.timeout).opened():
            return 1000 * (loop.time() - began)
    except Unreachable as error:
        return str(error)
