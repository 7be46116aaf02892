"""Metrics of ended transactions."""

from collections import Counter
from collections.abc import Awaitable, Iterator

from proxy.core.context import Context
from proxy.core.messaging import Handling, Messaging
from proxy.observability.metrics.family import Family, Kind, Labels, Samples
from remoting.command import RemotingCommand

ENDED = Family(
    "gantry_transactions",
    Kind.COUNTER,
    "END_TRANSACTION requests and EndTransaction rpcs, by outcome of the transaction: commit, rollback or unknown.",
    ("protocol", "outcome"),
)
# commitOrRollback in the header (RocketMQ's MessageSysFlag).
_OUTCOMES = {"8": "commit", "12": "rollback"}


class CountedTransactions:
    """A handler of END_TRANSACTION that counts the outcomes and delegates to another handler."""

    def __init__(self, handling: Handling) -> None:
        self._handling = handling
        self._counts: Counter[Labels] = Counter()

    def __call__(self, core: Messaging, context: Context) -> Awaitable[RemotingCommand] | None:
        outcome = _OUTCOMES.get(context.fields.get("commitOrRollback", ""), "unknown")
        self._counts[context.channel.protocol, outcome] += 1
        return self._handling(core, context)

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the family of this module."""
        yield ENDED, dict(self._counts)
