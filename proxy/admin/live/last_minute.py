"""Topics or groups of the last seconds, summed up as seconds pass: a look adds up nothing."""

from heapq import nsmallest

from proxy.admin.live.traffic_second import OTHERS, Sums

# Names that are told apart; what is beyond goes under one name.
MAX = 5_000

# One second's sums by name.
Table = dict[str, Sums]


class Recent:
    """Sums by name over the tables that were `add`ed and not yet removed."""

    def __init__(self) -> None:
        self.sums: Table = {}

    def add(self, table: Table) -> None:
        """A second is complete. Names for which there is no room go under one name in `table`, too."""
        sums = self.sums
        for name in list(table):
            known = sums.get(name)
            if known is None:
                if len(sums) >= MAX and name != OTHERS:
                    table.setdefault(OTHERS, Sums()).join(table.pop(name))
                    continue
                known = sums[name] = Sums()
            # Theirs grow until all names have been seen.
            if name != OTHERS:
                known.join(table[name])
        if OTHERS in table:
            sums.setdefault(OTHERS, Sums()).join(table[OTHERS])

    def remove(self, table: Table) -> None:
        """A second that was added is too long ago now."""
        for name, one in table.items():
            known = self.sums[name]
            known.join(one, -1)
            if not known.requests:
                del self.sums[name]

    def busiest(self, limit: int, text: str) -> list[str]:
        """The names with the most requests that hold `text`, in lower case."""
        sums = self.sums
        names = (name for name in sums if text in name.lower()) if text else sums
        return nsmallest(limit, names, key=lambda name: (-sums[name].requests, name))
