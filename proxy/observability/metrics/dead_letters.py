"""Counts of messages that go to the dead letter queues of consumer groups."""

from collections import Counter
from collections.abc import Callable, Mapping

from proxy.core.context import Context
from proxy.core.events import MAX_NAME_LENGTH
from proxy.observability.metrics.label_limiter import OTHER
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.names import popped_topic

# Groups and topics with counts of their own; clients choose the topic of the request.
_MAX_ROWS = 10_000


class DeadLetterCounts:
    """Dead letters by protocol, group and original topic, by their broker-side names.

    gRPC's ForwardMessageToDeadLetterQueue, and deliveries without attempts left, reach the core as
    CONSUMER_SEND_MSG_BACK. exact: a broker in this process reports its dead letters to `add`. The replies of other
    brokers do not contain whether a message had no redeliveries left, so that only requests for the dead letter queue
    are counted.
    reply_guards: for `Messaging.reply_guards`.
    """

    def __init__(self) -> None:
        self.exact = False
        self.rows: Counter[tuple[str, str, str]] = Counter()
        self.reply_guards: Mapping[int, Callable[[Context, RemotingCommand], None]] = {
            int(RequestCode.CONSUMER_SEND_MSG_BACK): self._on_sent_back
        }

    def add(self, protocol: str, group: str, topic: str) -> None:
        """Count a message. topic: its original topic, or the group's retry topic of it."""
        key = protocol, group, popped_topic(topic, group)
        if key not in self.rows and (len(self.rows) >= _MAX_ROWS or max(map(len, key)) > MAX_NAME_LENGTH):
            key = protocol, OTHER, OTHER
        self.rows[key] += 1

    def _on_sent_back(self, context: Context, reply: RemotingCommand) -> None:
        if self.exact or reply.code != ResponseCode.SUCCESS:
            return
        fields = context.fields
        # Brokers compare the redeliveries so far, at least 0, with the maximum.
        if _number(fields.get("delayLevel"), 0) < 0 or _number(fields.get("maxReconsumeTimes"), 1) <= 0:
            self.add(context.channel.protocol, fields.get("group", ""), fields.get("originTopic", ""))


def _number(text: str | None, default: int) -> int:
    try:
        return int(text) if text else default
    except ValueError:
        return default
