"""Metrics of the requests that brokers push to clients."""

from collections import Counter
from collections.abc import Iterator

from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.events import UNKNOWN_CODE
from proxy.observability.metrics.family import Family, Kind, Labels, Samples
from remoting.command import RemotingCommand
from remoting.outcomes import Reply
from remoting.requests import REQUESTS

PUSHES = Family(
    "gantry_pushes",
    Kind.COUNTER,
    "Requests from brokers relayed to clients, by request code; CHECK_TRANSACTION_STATE is a transaction check.",
    ("protocol", "code"),
)


class CountedPush:
    """A `Push` that counts the requests it relays."""

    def __init__(self, push: Push) -> None:
        self._push = push
        self._counts: Counter[Labels] = Counter()

    def __call__(self, channel: Channel, command: RemotingCommand) -> Reply | None:
        spec = REQUESTS.get(command.code)
        self._counts[channel.protocol, UNKNOWN_CODE if spec is None else spec.name] += 1
        return self._push(channel, command)

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the family of this module."""
        yield PUSHES, dict(self._counts)
