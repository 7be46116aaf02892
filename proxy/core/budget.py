"""The memory of all in-flight requests."""

import math
from collections.abc import Callable

from proxy.core.context import Context
from remoting.errors import Overloaded


class Budget:
    """Rejects requests while all in-flight requests occupy more than `limit` bytes (`Context.memory`).

    limit: None: no limit. on_full: called with a request over the limit; rejects it by raising Overloaded.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit: float = math.inf if limit is None else limit
        self.used = 0
        self.on_full: Callable[[Context], None] = self.reject

    def reject(self, _: Context) -> None:
        """Raise Overloaded."""
        raise Overloaded(f"{self.used} bytes of requests are in flight; try again later")
