"""Traces of messages: who sent and consumed them, from the records that clients and Gantry write to the trace topic."""

from dataclasses import dataclass

import anyio
import anyio.lowlevel
from pydantic import Field

from proxy.operations.messages import message_lookup
from proxy.operations.operation import REMOTE_TIMEOUT, operation
from proxy.operations.services import AdminServices
from proxy.operations.values import Answer, Timestamp, at_milliseconds
from remoting import messages
from remoting.errors import BodyError
from remoting.message_query import EVER
from remoting.message_trace import ConsumptionEnd, ConsumptionStart, Publication, Record, decode

# Bytes of a trace message, decompressed: clients write at most 128,000. A small message may expand to much more.
_MAX_BODY = 256 * 1024


class TracedSend(Answer):
    """A message that was sent."""

    time: Timestamp | None
    topic: str = Field(examples=["orders"])
    group: str = Field(description="producer group; for gRPC clients the topic", examples=["shop"])
    client_host: str = Field(description="address of the writer of the record", examples=["192.0.2.7"])
    milliseconds: int
    bytes: int
    success: bool


class TracedConsumption(Answer):
    """A delivery to a consumer group, and its end; `success` is null while it is open or its end is not recorded."""

    group: str = Field(examples=["orders-billing"])
    time: Timestamp | None
    attempt: int = Field(description="delivery attempt, from 1")
    client_host: str = Field(examples=["192.0.2.7"])
    success: bool | None
    milliseconds: int | None = Field(description="time until its end")


class MessageTraceReport(Answer):
    """The trace of a message; empty if no client wrote one."""

    message_id: str = Field(examples=["7F000001000018B4AAC2000000000001"])
    sends: list[TracedSend]
    consumptions: list[TracedConsumption]


@dataclass(frozen=True, slots=True)
class TraceQuery:
    """A message by its unique id. topic: that of the records; None: the one of the settings."""

    message_id: str
    topic: str | None = None


@operation("traces.get", timeout=REMOTE_TIMEOUT, merged=False)
async def get_trace(services: AdminServices, query: TraceQuery) -> MessageTraceReport:
    """Return a message's trace. Raises RemotingError (TopicNotExist: there is no such topic)."""
    topic = query.topic or services.replica.settings.grpc.trace_topic
    found = await message_lookup.by_key(services, topic, query.message_id, 0, EVER)
    records: list[tuple[Record, str]] = []
    for one in reversed(found):
        try:
            decoded = decode(messages.body(one.message, _MAX_BODY), query.message_id)
        except BodyError:
            # Other programs may write to the topic.
            continue
        host, _ = one.message.born_host
        records += [(record, host) for record in decoded if record.message_id == query.message_id]
        # Other clients' turn.
        await anyio.lowlevel.checkpoint()
    ends = {record.request_id: record for record, _ in records if isinstance(record, ConsumptionEnd)}
    sends = [_send(record, host) for record, host in records if isinstance(record, Publication)]
    starts = [(record, host) for record, host in records if isinstance(record, ConsumptionStart)]
    starts.sort(key=lambda item: item[0].time)
    return MessageTraceReport(
        message_id=query.message_id,
        sends=sends,
        consumptions=[_consumption(record, host, ends.get(record.request_id)) for record, host in starts],
    )


def _send(record: Publication, host: str) -> TracedSend:
    return TracedSend(
        time=at_milliseconds(record.time),
        topic=record.topic,
        group=record.group,
        client_host=host,
        milliseconds=record.cost,
        bytes=record.body_length,
        success=record.success,
    )


def _consumption(start: ConsumptionStart, host: str, end: ConsumptionEnd | None) -> TracedConsumption:
    return TracedConsumption(
        group=start.group,
        time=at_milliseconds(start.time),
        attempt=start.retries + 1,
        client_host=host,
        success=None if end is None else end.success,
        milliseconds=None if end is None else end.cost,
    )
