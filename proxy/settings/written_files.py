"""Files that others write while this process reads them.

A file of users or rules that is written in place is often valid without its end. Until its last lines are there, the
requests that they deny would be permitted, and connections that open meanwhile would keep the names that they get.
"""

from collections.abc import Callable

import anyio
import anyio.to_thread

# Seconds without a change after which a file is complete, and times that it is looked at until then.
_QUIET = 0.2
_LOOKS = 10


async def is_complete(stamp_of: Callable[[], object]) -> bool:
    """Return whether a changed file is complete: its stamp stays the same for a moment. Waits for that for 2 seconds.

    stamp_of: returns a value that changes with the file; called in a thread.
    """
    stamp = await anyio.to_thread.run_sync(stamp_of)
    for _ in range(_LOOKS):
        await anyio.sleep(_QUIET)
        former, stamp = stamp, await anyio.to_thread.run_sync(stamp_of)
        if stamp == former:
            return True
    return False
