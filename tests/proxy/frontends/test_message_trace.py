"""Trace records of gRPC clients' messages: what a client sends cannot lose or fill up those of others."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from grpc_gateway import message_trace
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.message_trace import MessageTrace
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code, Message, Resource, SystemProperties
from proxy.frontends.message_trace_writer import MessageTraceWriter
from remoting import command as commands
from remoting import properties
from remoting.command import RemotingCommand
from remoting.message_trace import Publication, decode
from remoting.names import TRACE_TOPIC
from remoting.send_message import V2

pytestmark = pytest.mark.anyio

_RPC = cast(Rpc, None)


class Broker:
    """A backend that keeps what it is sent."""

    def __init__(self) -> None:
        self.stored: list[RemotingCommand] = []

    async def route(self, _: str) -> Any:
        return SimpleNamespace(writable=[("broker-a", 0)])

    async def request(self, *arguments: Any) -> RemotingCommand:
        self.stored.append(arguments[2])
        return commands.success()

    @property
    def records(self) -> list[Publication]:
        """All records."""
        found = [record for command in self.stored for record in decode(command.body)]
        return [record for record in found if isinstance(record, Publication)]

    @property
    def keys(self) -> list[str]:
        """The keys of each trace message."""
        return [properties.decode(command.fields[V2.properties])[properties.KEYS] for command in self.stored]


def _request(message_id: str, keys: list[str], topic: str = "orders", tag: str = "A") -> pb.SendMessageRequest:
    system = SystemProperties(message_id=message_id, keys=keys, tag=tag)
    return pb.SendMessageRequest(messages=[Message(topic=Resource(name=topic), system_properties=system, body=b"x")])


async def _send(trace: MessageTrace, request: pb.SendMessageRequest) -> None:
    async def accept(_: Rpc, request: pb.SendMessageRequest) -> pb.SendMessageResponse:
        return pb.SendMessageResponse(entries=[pb.SendResultEntry() for _ in request.messages])

    await trace.sends(accept)(_RPC, request)


async def _refuse(trace: MessageTrace, request: pb.SendMessageRequest) -> None:
    async def refuse(_: Rpc, __: pb.SendMessageRequest) -> pb.SendMessageResponse:
        raise Refused(Code.ILLEGAL_MESSAGE_KEY, "not valid")

    with pytest.raises(Refused):
        await trace.sends(refuse)(_RPC, request)


def _writer(trace: MessageTrace) -> tuple[MessageTraceWriter, Broker]:
    broker = Broker()
    return MessageTraceWriter(cast(Any, SimpleNamespace(backend=broker)), trace), broker


async def test_refused_message_does_not_lose_the_records_of_others() -> None:
    trace = MessageTrace(TRACE_TOPIC)
    writer, broker = _writer(trace)
    await _send(trace, _request("id-1", ["key-1"]))
    await _refuse(trace, _request("a\x02b\x01c\n", ["a\x02b"], "t\x02" * 1000, "\x01"))
    await _refuse(trace, _request("x" * 1000, ["key"]))
    await writer.flush()
    assert trace.counts == {"written": 3}
    sent, strange, long = broker.records
    assert (sent.message_id, sent.keys, sent.tag, sent.topic) == ("id-1", "key-1", "A", "orders")
    assert (strange.message_id, strange.keys, strange.tag) == ("a?b?c?", "", "")
    assert (len(strange.topic), len(long.message_id), long.keys) == (255, 255, "")
    assert broker.keys == [f"id-1 key-1 a?b?c? {'x' * 255}"]


async def test_refused_messages_take_little_memory() -> None:
    trace = MessageTrace(TRACE_TOPIC)
    for _ in range(5):
        await _refuse(trace, _request("\u9d8f" * 1_000_000, ["a" * 1_000_000], "t" * 1_000_000, "b" * 1_000_000))
    assert sum(len(part) for record in trace.waiting for part in record) < 20_000


async def test_waiting_records_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_trace, "_MAX_WAITING_BYTES", 10_000)
    trace = MessageTrace(TRACE_TOPIC)
    writer, broker = _writer(trace)
    for number in range(10):
        await _send(trace, _request(f"id-{number}", ["k" * 1_000]))
    kept = len(trace.waiting)
    assert 2 <= kept < 5
    assert trace.counts == {"dropped": 10 - kept}
    await writer.flush()
    assert (len(broker.records), trace.waiting_bytes) == (kept, 0)
    await _send(trace, _request("next", []))
    assert len(trace.waiting) == 1


async def test_keys_fit_the_properties_of_a_message() -> None:
    """Brokers refuse more than 32,767 bytes."""
    trace = MessageTrace(TRACE_TOPIC)
    writer, broker = _writer(trace)
    for number in range(4):
        await _send(trace, _request(f"id-{number}", ["\u9d8f" * 3_000, "\u9d8f" * 3_000]))
    await writer.flush()
    assert trace.counts == {"written": 4}
    assert all(len(command.fields[V2.properties].encode()) < 16_100 for command in broker.stored)
    found = " ".join(broker.keys).split()
    # A key that does not fit is left out as a whole.
    assert found == [key for number in range(4) for key in (f"id-{number}", "\u9d8f" * 3_000)]
