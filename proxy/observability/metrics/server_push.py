"""Pushes: what brokers ask of clients, and tell them."""

from collections import Counter
from collections.abc import Iterator

from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.messaging import Reply
from proxy.observability.metrics.family import Family, Kind, Labels, Samples
from remoting.command import RemotingCommand
from remoting.requests import REQUESTS

PUSHES = Family(
    "gantry_pushes",
    Kind.COUNTER,
    "Requests of brokers that were passed on to clients; CHECK_TRANSACTION_STATE asks what became of a transaction.",
    ("protocol", "code"),
)


class Pushes:
    """A push that counts what it passes on."""

    def __init__(self, push: Push) -> None:
        self._push = push
        self._counts: Counter[Labels] = Counter()

    def __call__(self, channel: Channel, command: RemotingCommand) -> Reply | None:
        spec = REQUESTS.get(command.code)
        self._counts[channel.protocol, "unknown" if spec is None else spec.name] += 1
        return self._push(channel, command)

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """The family of this module."""
        yield PUSHES, dict(self._counts)
