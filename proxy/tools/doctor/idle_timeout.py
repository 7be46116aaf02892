"""Idle timeouts of anything between client and server."""

import asyncio
from collections.abc import AsyncIterator

from proxy.tools.doctor import wire
from proxy.tools.doctor.connection import Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.session import Diagnosis
from proxy.tools.doctor.wire import Unanswered


async def check_idle_timeout(diagnosis: Diagnosis) -> AsyncIterator[Finding]:
    """Send a request, stay idle, and send it again."""
    seconds = diagnosis.options.idle
    if seconds is None or not diagnosis.remoting:
        return
    try:
        async with diagnosis.line.client() as client:
            await wire.ask_route(client, wire.UNUSED_TOPIC)
            await asyncio.sleep(seconds)
            await wire.ask_route(client, wire.UNUSED_TOPIC)
    except (Unanswered, Unreachable):
        yield finding("idle.cut", seconds=seconds)
    else:
        yield finding("idle.kept", seconds=seconds)
