"""The checks, in their order."""

from collections.abc import AsyncIterator, Callable

from proxy.tools.doctor.clock import clock
from proxy.tools.doctor.encryption import encryption
from proxy.tools.doctor.findings import Finding
from proxy.tools.doctor.idle_timeout import patience
from proxy.tools.doctor.name_resolution import reach, resolution
from proxy.tools.doctor.protocols import protocols
from proxy.tools.doctor.routes import destinations
from proxy.tools.doctor.session import Options, Visit
from proxy.tools.doctor.topics import permissions

Check = Callable[[Visit], AsyncIterator[Finding]]

# Later ones build on what earlier ones learnt, and say nothing where that is missing.
CHECKS: tuple[Check, ...] = (resolution, reach, encryption, protocols, destinations, permissions, clock, patience)


async def diagnose(options: Options) -> AsyncIterator[Finding]:
    """Everything that is found at the endpoint, as it is found."""
    visit = Visit(options)
    for check in CHECKS:
        async for found in check(visit):
            yield found
