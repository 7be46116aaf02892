"""A broker in memory, with a manual clock and fake clients."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.core.channel import Channel
from proxy.core.messaging import completed
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.dispatch import new_broker
from proxy.embedded.broker.settings import BrokerSettings
from remoting import command as commands
from remoting import messages, pop, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.messages import StoredMessage
from remoting.outcomes import Reply
from remoting.pop import PoppedMessage
from remoting.pop_offset_info import real_topic
from tests.cluster.client import heartbeat, pull_fields, send_fields, strings, v2
from tests.proxy.embedded.memory_store import MemoryStore
from tests.proxy.fakes import FakeChannel

START = 1_700_000_000_000


@dataclass
class BrokerHarness:
    """One broker and its time in ms. `restart` keeps the store.

    elapse: returns the time in seconds from which the broker sees how long its work takes, which takes none.
    """

    settings: BrokerSettings = field(default_factory=BrokerSettings)
    now: int = START
    store: MemoryStore = field(init=False)
    broker: Broker = field(init=False)
    client: FakeChannel = field(default_factory=FakeChannel)
    pushed: list[tuple[Channel, RemotingCommand]] = field(default_factory=list)
    push_answer: RemotingCommand | Exception | None = None
    # Channels that may receive nothing.
    refused: list[Channel] = field(default_factory=list)
    elapse: Callable[[], float] = lambda: 0.0

    def __post_init__(self) -> None:
        self.store = MemoryStore(lambda: self.now)
        self.restart()

    def restart(self) -> None:
        """Start a new broker on the same store."""
        self.broker = new_broker(self.settings, self.store, self._push, self.now, lambda: self.elapse())
        # So that a failure is reproducible.
        self.broker.random.seed(0)

    def _push(self, channel: Channel, command: RemotingCommand) -> Reply | None:
        if channel in self.refused:
            return completed(commands.response(ResponseCode.NO_PERMISSION))
        self.pushed.append((channel, command))
        if command.is_oneway:
            return None
        reply: Reply = asyncio.get_running_loop().create_future()
        if isinstance(self.push_answer, Exception):
            reply.set_exception(self.push_answer)
        elif self.push_answer is not None:
            reply.set_result(self.push_answer)
        return reply

    def pass_time(self, milliseconds: int, step: int = 100) -> None:
        """Advance the time and tick."""
        end = self.now + milliseconds
        while self.now < end:
            self.now = min(self.now + step, end)
            self.broker.tick(self.now)

    # Requests.

    def begin(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        channel: FakeChannel | None = None,
    ) -> Reply:
        """Send a request; return the future of its response."""
        command = commands.request(code, strings(fields or {}), body)
        command.header["version"] = 481
        reply = self.broker.handle(channel or self.client, command, self.now)
        if reply is None:
            # Never done: there is no response.
            reply = asyncio.get_running_loop().create_future()
        return reply

    def ask(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        channel: FakeChannel | None = None,
    ) -> RemotingCommand:
        """Send a request that is answered immediately; return its response."""
        reply = self.begin(code, fields, body, channel)
        assert reply.done()
        return reply.result()

    def get(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        channel: FakeChannel | None = None,
    ) -> RemotingCommand:
        """Send a request; return its response, which must be SUCCESS."""
        reply = self.ask(code, fields, body, channel)
        assert reply.code == ResponseCode.SUCCESS, (reply.code, reply.remark)
        return reply

    # Common requests.

    def topic(self, name: str, queues: int = 1, attributes: str = "", **changes: object) -> str:
        """Create a topic; return its name."""
        fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicSysFlag": 0,
            "order": False,
            "attributes": attributes,
            **changes,
        }
        self.get(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        return name

    def send(
        self, topic: str, body: bytes = b"x", pairs: Mapping[str, str] | None = None, queue: int = 0, **changes: object
    ) -> RemotingCommand:
        """Send SEND_MESSAGE_V2; return its response."""
        fields = send_fields(topic, properties.encode(pairs or {}), queue, **{"bornTimestamp": self.now, **changes})
        return self.ask(RequestCode.SEND_MESSAGE_V2, v2(fields), body)

    def pull(self, topic: str, group: str = "g", queue: int = 0, offset: int = 0, **changes: object) -> RemotingCommand:
        """Send a PULL_MESSAGE that does not wait; return its response."""
        return self.ask(RequestCode.PULL_MESSAGE, {**pull_fields(topic, group, queue, offset), **changes})

    def bodies(self, topic: str, group: str = "g", queue: int = 0, offset: int = 0) -> list[bytes]:
        """Return the bodies of the messages in a queue."""
        return [message.body for message in self.stored(topic, queue, offset)]

    def stored(self, topic: str, queue: int = 0, offset: int = 0) -> list[StoredMessage]:
        """Return the messages of a queue."""
        records = self.store.read(topic, queue, offset, 1000, 1 << 30)
        return [messages.decode_message(record) for record in records]

    def pop_fields(self, topic: str, group: str = "g", **changes: object) -> dict[str, object]:
        """Return the header of a POP_MESSAGE."""
        return {
            "consumerGroup": group,
            "topic": topic,
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 10_000,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 0,
            "order": False,
            **changes,
        }

    def pop(self, topic: str, group: str = "g", **changes: object) -> list[PoppedMessage]:
        """Pop messages without waiting."""
        reply = self.ask(RequestCode.POP_MESSAGE, self.pop_fields(topic, group, **changes))
        return self.popped(reply, topic)

    def popped(self, reply: RemotingCommand, topic: str) -> list[PoppedMessage]:
        """Return the messages of a pop's response with their receipt handles."""
        if reply.code in {ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL}:
            return []
        assert reply.code == ResponseCode.SUCCESS, (reply.code, reply.remark)
        return pop.popped(messages.decode_messages(reply.body), topic, reply.fields, self.settings.name)

    def handle_fields(
        self, topic: str, popped: PoppedMessage, group: str = "g", **changes: object
    ) -> dict[str, object]:
        """Return the header of an ACK_MESSAGE."""
        handle = popped.extra_info
        return {
            "consumerGroup": group,
            "topic": real_topic(topic, group, handle.retry),
            "queueId": handle.queue_id,
            "extraInfo": handle,
            "offset": handle.queue_offset,
            **changes,
        }

    def ack(self, topic: str, popped: PoppedMessage, group: str = "g") -> RemotingCommand:
        """Send an ACK_MESSAGE; return its response."""
        return self.ask(RequestCode.ACK_MESSAGE, self.handle_fields(topic, popped, group))

    def change(self, topic: str, popped: PoppedMessage, milliseconds: int) -> dict[str, str]:
        """Send a CHANGE_MESSAGE_INVISIBLETIME; return the response's fields."""
        fields = self.handle_fields(topic, popped, invisibleTime=milliseconds)
        return self.get(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields).fields

    def join(
        self,
        consumers: Mapping[str, Iterable[str]] | None = None,
        producers: Iterable[str] = (),
        channel: FakeChannel | None = None,
        name: str = "c",
        **changes: Any,
    ) -> RemotingCommand:
        """Send a HEART_BEAT."""
        return self.get(RequestCode.HEART_BEAT, {}, heartbeat(name, consumers or {}, producers, **changes), channel)


def texts(popped: Iterable[PoppedMessage]) -> list[bytes]:
    """Return the bodies of popped messages."""
    return [one.message.body for one in popped]
