"""The reload of users, policies and keys while the replica runs."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from proxy.auth.authority import Authority
from remoting.tasks import every


async def reload(authority: Authority, interval: float) -> None:
    """Look for changes every `interval` seconds, until cancelled.

    A slow server of keys does not delay the changes of users and policies.
    """
    async with anyio.create_task_group() as group:
        for refresh in (authority.refresh, *authority.refreshers):
            work = partial(_check, authority, refresh)
            group.start_soon(partial(every, interval, work, name="changes of users and policies"))


async def _check(authority: Authority, refresh: Callable[[], Awaitable[bool | None]]) -> None:
    if await refresh():
        authority.changed()
