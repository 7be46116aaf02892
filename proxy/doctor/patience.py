"""Whether something between client and server cuts connections on which nothing is said for a while."""

import asyncio
from collections.abc import AsyncIterator

from proxy.doctor import wire
from proxy.doctor.catalogue import Finding, finding
from proxy.doctor.line import Unreachable
from proxy.doctor.protocols import NOBODYS
from proxy.doctor.visit import Visit
from proxy.doctor.wire import Unanswered


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
