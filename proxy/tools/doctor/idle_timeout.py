"""Whether something between client and server cuts connections on which nothing is said for a while."""

import asyncio
from collections.abc import AsyncIterator

from proxy.tools.doctor import wire
from proxy.tools.doctor.connection import Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.protocols import NOBODYS
from proxy.tools.doctor.session import Visit
from proxy.tools.doctor.wire import Unanswered


async def patience(visit: Visit) -> AsyncIterator[Finding]:
    """Say something, be silent, and say it again."""
    seconds = visit.options.idle
    if seconds is None or not visit.remoting:
        return
    try:
        async with visit.line.opened() as opened:
            await wire.ask_route(opened, NOBODYS)
            await asyncio.sleep(seconds)
            await wire.ask_route(opened, NOBODYS)
    except (Unanswered, Unreachable):
        yield finding("idle.cut", seconds=seconds)
    else:
        yield finding("idle.kept", seconds=seconds)
