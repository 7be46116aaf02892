"""DescribeGroupAccumulation, QueryTimeSpan and ResetGroupOffset."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code, Resource
from proxy.admin.grpc import answers, groups
from proxy.operations import broker_requests
from proxy.operations.broker_requests import Answers
from proxy.operations.groups import consumer_progress, offset_table
from proxy.operations.groups.consumer_progress import ResetOrder, ResetToTime
from proxy.operations.groups.offset_table import QueueOffsets
from proxy.operations.services import AdminServices
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from remoting.fastjson import load_object
from remoting.names import pop_retry_topics, popped_topic

_Accumulation = pb.DescribeGroupAccumulationResponse.GroupAccumulation

# Maximum topics of one request, each of which costs several requests to each broker.
_MAX_TOPICS = 100


@dataclass(slots=True)
class _Sums:
    """Progress of a group in a topic. last: storage time of the latest consumed message, ms since 1970."""

    lag: int = 0
    in_flight: int = 0
    last: int = 0

    def add(self, offsets: QueueOffsets) -> None:
        """Add one queue."""
        self.lag += offsets.lag
        self.in_flight += offsets.in_flight
        self.last = max(self.last, offsets.consumed_until)


async def describe_group_accumulation(
    services: AdminServices, request: pb.DescribeGroupAccumulationRequest
) -> pb.DescribeGroupAccumulationResponse:
    """Return the progress of a group in some topics, or in all that it has consumed; retries of a popped topic belong
    to it.

    deliver_delay_time is the age of the first unconsumed message. In flight are messages that were pulled and not
    committed; messages handed out by pop count as consumed in RocketMQ's statistics. Raises Refused, RemotingError.
    """
    if request.lite_topic:
        raise Refused(Code.NOT_IMPLEMENTED, "brokers do not tell how far a group is in a lite topic")
    group, wanted = answers.group(request.group), _topics(request.topics)
    asked = await _stats(services, group, wanted)
    sums: dict[str, _Sums] = {topic: _Sums() for topic in wanted}
    for one in asked:
        for reply in one.replies.values():
            for offsets in offset_table.progress(reply.body):
                sums.setdefault(popped_topic(offsets.key.topic, group), _Sums()).add(offsets)
    delays = await _delays(services, group, [topic for topic, one in sums.items() if one.lag])
    rows = {topic: _row([one], delays.get(topic)) for topic, one in sums.items()}
    return pb.DescribeGroupAccumulationResponse(
        status=answers.ok_status([text for one in asked for text in one.missing]),
        accumulation=_row(sums.values(), max(delays.values(), default=None)),
        topic_accumulation=rows,
    )


async def _stats(services: AdminServices, group: str, topics: list[str]) -> list[Answers]:
    core = services.replica.core
    names = await core.backend.brokers()
    code = RequestCode.GET_CONSUME_STATS
    if not topics:
        return [await broker_requests.ask_each(core, names, code, {"consumerGroup": group})]
    for topic in topics:
        # Statistics omit topics that do not exist.
        await core.backend.route(topic)
    wanted = [name for topic in topics for name in (topic, *pop_retry_topics(topic, group))]
    asked = (
        broker_requests.ask_each(
            core, names, code, {"consumerGroup": group, "topic": name}, (ResponseCode.TOPIC_NOT_EXIST,)
        )
        for name in wanted
    )
    return await asyncio.gather(*asked)


def _row(sums: Iterable[_Sums], delay: int | None) -> _Accumulation:
    total = _Sums()
    for one in sums:
        total.lag += one.lag
        total.in_flight += one.in_flight
        total.last = max(total.last, one.last)
    row = _Accumulation(
        inflight_messages=total.in_flight,
        ready_messages=total.lag - total.in_flight,
        accumulation=total.lag,
        last_consume_timestamp=total.last,
    )
    if delay is not None:
        row.deliver_delay_time.FromMilliseconds(delay)
    return row


async def _delays(services: AdminServices, group: str, topics: list[str]) -> dict[str, int]:
    """Return the delay of a group in each of these topics, in ms, where it is known."""

    async def delay(topic: str) -> int | None:
        try:
            spans, _ = await _spans(services, group, topic)
        except RemotingError:
            return None
        return max((span.delay_time_ms for span in spans), default=None)

    found = await asyncio.gather(*map(delay, topics))
    return {topic: late for topic, late in zip(topics, found, strict=True) if late is not None}


def _topics(resources: Iterable[Resource]) -> list[str]:
    """Return names of topics, without repetitions, in order. Raises Refused."""
    names = list(dict.fromkeys(answers.topic(resource) for resource in resources))
    if len(names) > _MAX_TOPICS:
        raise Refused(Code.BAD_REQUEST, f"{len(names)} topics: at most {_MAX_TOPICS} at a time")
    return names


async def query_time_span(services: AdminServices, request: pb.QueryTimeSpanRequest) -> pb.QueryTimeSpanResponse:
    """Return the times of the messages in each queue of some topics, and the group's place; without topics: of all it
    has consumed.

    Raises Refused, RemotingError.
    """
    group = answers.group(request.group)
    topics = _topics(request.topics) or (await groups.topics_of(services, group))[:_MAX_TOPICS]
    found = await asyncio.gather(*(_spans(services, group, topic) for topic in topics))
    return pb.QueryTimeSpanResponse(
        status=answers.ok_status([text for _, missing in found for text in missing]),
        queue_time_span_list=[span for spans, _ in found for span in spans],
    )


async def _spans(
    services: AdminServices, group: str, topic: str
) -> tuple[list[pb.QueryTimeSpanResponse.QueueTimeSpan], tuple[str, ...]]:
    core = services.replica.core
    route = await core.backend.route(topic)
    fields = {"topic": topic, "group": group}
    asked = await broker_requests.ask_each(core, route.brokers, RequestCode.QUERY_CONSUME_TIME_SPAN, fields)
    rows = [row for reply in asked.replies.values() for row in load_object(reply.body).get("consumeTimeSpanSet") or ()]
    return sorted(
        map(_span, rows), key=lambda span: (span.message_queue.broker.name, span.message_queue.id)
    ), asked.missing


def _span(row: dict[str, Any]) -> pb.QueryTimeSpanResponse.QueueTimeSpan:
    """Return QueueTimeSpan. Brokers send -1 without a message, and 1970 for a group without offsets."""
    queue = row.get("messageQueue") or {}
    first, last, consumed = (
        max(int(row.get(name, 0)), 0) for name in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp")
    )
    age = max(int(time.time() * 1000) - first, 0) if first else 0
    return pb.QueryTimeSpanResponse.QueueTimeSpan(
        message_queue=answers.queue_of(
            str(queue.get("topic", "")), str(queue.get("brokerName", "")), int(queue.get("queueId", 0))
        ),
        min_timestamp=first,
        max_timestamp=last,
        consume_timestamp=consumed,
        delay_time_ms=min(max(int(row.get("delayTime", 0)), 0), age),
    )


async def reset_group_offset(
    services: AdminServices, request: pb.ResetGroupOffsetRequest
) -> pb.ResetGroupOffsetResponse:
    """Move a group, in all queues of a topic, to the first message stored at or after a time.

    Raises Refused, RemotingError; queues that brokers have reset by then stay reset.
    """
    group, topic = answers.group(request.group), answers.topic(request.topic)
    # A missing time would be 1970: a full replay.
    if request.reset_timestamp.seconds <= 0:
        raise Refused(Code.BAD_REQUEST, "reset_timestamp is not set, or not after 1970-01-01")
    try:
        moment = request.reset_timestamp.ToDatetime(UTC)
    except (ValueError, OverflowError):
        raise Refused(Code.BAD_REQUEST, "reset_timestamp is no time that a calendar has") from None
    await consumer_progress.reset_offset(services, ResetOrder(group, ResetToTime(topic=topic, time=moment)))
    return pb.ResetGroupOffsetResponse(status=answers.ok_status())
