"""Reload of the certificate of an admin listener."""

import logging

import anyio.to_thread

from protocol_negotiation.tls import TlsSource
from protocol_negotiation.tls_files import Refresh

_log = logging.getLogger("gantry.admin")


async def reload(tls: TlsSource) -> Refresh:
    """Load changed certificate files. Files that cannot be used are logged, and the former ones stay in use."""
    outcome = await anyio.to_thread.run_sync(tls.refresh)
    if outcome is Refresh.FAILED:
        _log.error("the changed certificate is not usable, the previous one stays in use: %s", tls.error)
    return outcome
