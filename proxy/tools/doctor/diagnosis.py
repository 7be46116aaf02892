"""The checks, in their order."""

from collections.abc import AsyncIterator, Callable

from proxy.tools.doctor.clock import check_clock
from proxy.tools.doctor.encryption import check_tls
from proxy.tools.doctor.findings import Finding
from proxy.tools.doctor.idle_timeout import check_idle_timeout
from proxy.tools.doctor.name_resolution import check_addresses, check_name
from proxy.tools.doctor.protocols import check_protocols
from proxy.tools.doctor.routes import check_routes
from proxy.tools.doctor.session import Diagnosis, Options
from proxy.tools.doctor.topics import check_topic_and_group

Check = Callable[[Diagnosis], AsyncIterator[Finding]]

# Later checks use results of earlier ones, and report nothing without them.
CHECKS: tuple[Check, ...] = (
    check_name,
    check_addresses,
    check_tls,
    check_protocols,
    check_routes,
    check_topic_and_group,
    check_clock,
    check_idle_timeout,
)


async def diagnose(options: Options) -> AsyncIterator[Finding]:
    """Yield all findings about the endpoint."""
    diagnosis = Diagnosis(options)
    for check in CHECKS:
        async for found in check(diagnosis):
            yield found
