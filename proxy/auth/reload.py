"""The reload of users, policies and keys while the replica runs."""

import logging
from collections.abc import Awaitable, Callable

import anyio

from proxy.auth.authority import Authority

_log = logging.getLogger("gantry.auth")


async def reload(authority: Authority, interval: float) -> None:
    """Look for changes every `interval` seconds, until cancelled.

    A slow server of keys does not delay the changes of users and policies.
    """
    async with anyio.create_task_group() as group:
        for refresh in (authority.refresh, *authority.refreshers):
            group.start_soon(_repeat, authority, refresh, interval)


async def _repeat(authority: Authority, refresh: Callable[[], Awaitable[bool | None]], interval: float) -> None:
    while True:
        await anyio.sleep(interval)
        try:
            if await refresh():
                authority.changed()
        except Exception:
            # An internal error must not stop this task: permissions could no longer be revoked.
            _log.exception("users and policies cannot be checked for changes")
