"""The checks, in their order."""

from collections.abc import AsyncIterator, Callable

from proxy.doctor.catalogue import Finding
from proxy.doctor.clock import clock
from proxy.doctor.encryption import encryption
from proxy.doctor.names import reach, resolution
from proxy.doctor.patience import patience
from proxy.doctor.protocols import protocols
from proxy.doctor.routes import destinations
from proxy.doctor.topics import permissions
from proxy.doctor.visit import Options, Visit

Check = Callable[[Visit], AsyncIterator[Finding]]

# Later ones build on what earlier ones learnt, and say nothing where that is missing.
CHECKS: tuple[Check, ...] = (resolution, reach, encryption, protocols, destinations, permissions, clock, patience)


async def diagnose(options: Options) -> AsyncIterator[Finding]:
    """Everything that is found at the endpoint, as it is found."""
    visit = Visit(options)
    for check in CHECKS:
        async for found in check(visit):
            yield found
