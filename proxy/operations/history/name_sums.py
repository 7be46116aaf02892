"""Running sums by topic or group over the last seconds, so that reading them adds nothing up."""

from heapq import nsmallest

from proxy.operations.history.second import OTHERS, Sums, Table

# Names that have sums; all others share one name.
MAX_NAMES = 5_000


class NameSums:
    """Sums by name over the tables that were added and not yet removed."""

    def __init__(self) -> None:
        self.sums: Table = {}

    def add(self, table: Table) -> None:
        """Add a second. Names beyond the limit are replaced by `OTHERS` in `table` too."""
        sums = self.sums
        for name in list(table):
            known = sums.get(name)
            if known is None:
                if len(sums) >= MAX_NAMES and name != OTHERS:
                    table.setdefault(OTHERS, Sums()).add(table.pop(name))
                    continue
                known = sums[name] = Sums()
            # OTHERS may still grow in this loop, and is added after it.
            if name != OTHERS:
                known.add(table[name])
        if OTHERS in table:
            sums.setdefault(OTHERS, Sums()).add(table[OTHERS])

    def remove(self, table: Table) -> None:
        """Subtract a second that was added."""
        for name, second in table.items():
            known = self.sums[name]
            known.add(second, -1)
            if not known.requests:
                del self.sums[name]

    def busiest(self, limit: int, text: str) -> list[str]:
        """Return the names with the most requests that contain `text`, which is in lower case."""
        sums = self.sums
        names = (name for name in sums if text in name.lower()) if text else sums
        return nsmallest(limit, names, key=lambda name: (-sums[name].requests, name))
