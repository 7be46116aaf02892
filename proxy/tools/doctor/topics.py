"""Permissions of a client for its topic and group.

Nothing is left behind, unless sending a message is allowed.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2.definition_pb2 import Code, MessageType
from proxy.auth.policy import ANONYMOUS_USER
from proxy.tools.doctor import rpc, wire
from proxy.tools.doctor.connection import Target, Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.name_resolution import lookup
from proxy.tools.doctor.protocols import BROKER, GANTRY, calling
from proxy.tools.doctor.session import Diagnosis
from proxy.tools.doctor.wire import Unanswered
from proxy.tools.remoting_client import Speaker, route_from_reply
from remoting import messages, properties, send_message
from remoting.codes import OWN_VERSION, RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.pulling import reading_fields
from remoting.routes import TopicRoute

_SPEAKER = Speaker("JAVA", OWN_VERSION)
_BODY = b"gantry doctor was here"
_TAG = "gantry-doctor"
_SENT = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
_FORBIDDEN = (ResponseCode.NO_PERMISSION, Code.FORBIDDEN)
_NEVER_CONSUMED = ResponseCode.QUERY_NOT_FOUND
# A broker serves a message a moment after it has answered its send.
_TRIES, _PAUSE = 20, 0.1


@dataclass(frozen=True, slots=True)
class _Queue:
    """A queue to try, and its target."""

    topic: str
    broker: str
    number: int
    line: Target


async def check_topic_and_group(diagnosis: Diagnosis) -> AsyncIterator[Finding]:
    """Check the topic and the group; on request, send and read a message."""
    topic = diagnosis.options.topic
    if topic is None or not diagnosis.remoting or diagnosis.refused or diagnosis.kind == BROKER:
        return
    try:
        answer = await wire.ask_route(diagnosis.line, topic, _SPEAKER)
        route = route_from_reply(topic, answer)
    except (Unanswered, Unreachable, RemotingError) as error:
        yield finding("remoting.none", error=error)
        return
    if route is None:
        yield _unknown(diagnosis, topic, answer)
        return
    async for found in _queues(route):
        yield found
    types = await _types(diagnosis, topic)
    if types:
        yield finding("topic.types", topic=topic, types=", ".join(types))
    queue = await _queue(diagnosis, route)
    if queue is None:
        return
    if diagnosis.options.group is not None:
        async for found in _group(diagnosis, queue, diagnosis.options.group):
            yield found
    if diagnosis.options.write:
        async for found in _write(diagnosis, queue):
            yield found


def _unknown(diagnosis: Diagnosis, topic: str, answer: RemotingCommand) -> Finding:
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        command = _command(diagnosis, f"topics create {topic}", f"updateTopic -n NAMESRV -c CLUSTER -t {topic}")
        return finding("topic.unknown", topic=topic, command=command)
    return _denied(diagnosis, topic, "its route", answer.code, answer.remark, "Pub,Sub")


def _denied(diagnosis: Diagnosis, topic: str, action: str, code: int, remark: str | None, actions: str) -> Finding:
    """Return the finding about a rejected request. actions: those that permit it."""
    if code not in _FORBIDDEN:
        return finding("topic.denied", topic=topic, action=action, code=code, remark=remark)
    return finding(
        "topic.forbidden", topic=topic, action=action, remark=remark, **_grant(diagnosis, actions, topic=topic)
    )


def _grant(diagnosis: Diagnosis, actions: str, *, topic: str = "", group: str = "") -> dict[str, str]:
    """Return the subjects of the command that grants a permission."""
    credentials = diagnosis.options.credentials
    return {
        "user": ANONYMOUS_USER if credentials is None else credentials.access_key,
        "actions": actions,
        "resource": f"Topic:{topic}" if topic else f"Group:{group}",
    }


def _unknown_group(diagnosis: Diagnosis, group: str, broker: str) -> Finding:
    command = _command(diagnosis, f"groups create {group}", f"updateSubGroup -n NAMESRV -c CLUSTER -g {group}")
    return finding("group.unknown", group=group, broker=broker, command=command)


def _command(diagnosis: Diagnosis, gantry: str, mqadmin: str) -> str:
    """Return the command line that creates a topic or group: only Gantry serves the requests of `gantry`."""
    if diagnosis.kind != GANTRY:
        return f"mqadmin {mqadmin}"
    return f'gantry {gantry} --endpoint {diagnosis.options.endpoint}; before a cluster, that needs `tools = "all"`'


async def _queues(route: TopicRoute) -> AsyncIterator[Finding]:
    writable = len(route.writable)
    readable = sum(queues.readable for queues in route.queues)
    if writable and readable:
        brokers = ", ".join(route.brokers)
        yield finding("topic.usable", topic=route.topic, writable=writable, readable=readable, brokers=brokers)
    for count, verb in ((writable, "written"), (readable, "read")):
        if not count:
            yield finding("topic.closed", topic=route.topic, verb=verb)


async def _types(diagnosis: Diagnosis, topic: str) -> list[str]:
    """Report the message types that a gRPC client may send."""
    if not diagnosis.grpc:
        return []
    try:
        async with calling(diagnosis) as rpcs:
            answer = await rpcs.route(topic)
    except rpc.Refused:
        return []
    return sorted({MessageType.Name(kind) for queue in answer.message_queues for kind in queue.accept_message_types})


async def _queue(diagnosis: Diagnosis, route: TopicRoute) -> _Queue | None:
    """Return a queue to write to, or at least to read from, at the address that clients get."""
    names = [*route.writable, *((name, 0) for name in route.readable())]
    if not names:
        return None
    broker, number = names[0]
    (data,) = (item for item in route.data["brokerDatas"] if item["brokerName"] == broker)
    address = HostPort.parse(data["brokerAddrs"][min(data["brokerAddrs"])])
    try:
        found = await lookup(address)
    except (OSError, UnicodeError):
        # The check of routes has reported it.
        return None
    return _Queue(route.topic, broker, number, replace(diagnosis.line, address=found[0]))


async def _group(diagnosis: Diagnosis, queue: _Queue, group: str) -> AsyncIterator[Finding]:
    fields = {"consumerGroup": group, "topic": queue.topic, "queueId": str(queue.number), "bname": queue.broker}
    # Otherwise, the answer for a group without an offset may be 0.
    fields["setZeroIfNotFound"] = "false"
    try:
        answer = await wire.ask(queue.line, RequestCode.QUERY_CONSUMER_OFFSET, fields, speaker=_SPEAKER)
    except (Unanswered, Unreachable):
        return
    if answer.code == ResponseCode.SUCCESS:
        progress = f", at offset {answer.fields.get('offset')} of queue {queue.number} of {queue.broker}"
        yield finding("group.known", group=group, progress=progress)
    elif answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
        yield _unknown_group(diagnosis, group, queue.broker)
    elif answer.code == _NEVER_CONSUMED:
        yield finding("group.fresh", group=group, topic=queue.topic)
    elif answer.code in _FORBIDDEN:
        yield finding("group.forbidden", group=group, remark=answer.remark, **_grant(diagnosis, "Sub", group=group))
    else:
        yield finding("group.denied", group=group, code=answer.code, remark=answer.remark)


async def _write(diagnosis: Diagnosis, queue: _Queue) -> AsyncIterator[Finding]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        answer = await _send(queue)
    except (Unanswered, Unreachable) as error:
        yield finding("topic.denied", topic=queue.topic, action="a message", code="none", remark=error)
        return
    if answer.code not in _SENT:
        yield _denied(diagnosis, queue.topic, "a message", answer.code, answer.remark, "Pub")
        return
    took = 1000 * (loop.time() - began)
    yield finding("topic.sent", topic=queue.topic, protocol="remoting", milliseconds=took)
    group = diagnosis.options.group
    if group is not None:
        yield await _read(diagnosis, queue, group, int(answer.fields["queueId"]), int(answer.fields["queueOffset"]))
    if diagnosis.grpc:
        yield await _send_over_grpc(diagnosis, queue.topic)


async def _send(queue: _Queue) -> RemotingCommand:
    """Send SEND_MESSAGE_V2."""
    text = properties.encode({"TAGS": _TAG, "WAIT": "true"})
    fields = send_message.send_fields(
        producer_group="gantry-doctor",
        topic=queue.topic,
        queue_id=queue.number,
        broker=queue.broker,
        born_timestamp=int(time.time() * 1000),
        properties=text,
    )
    return await wire.ask(queue.line, RequestCode.SEND_MESSAGE_V2, fields, _BODY, _SPEAKER)


async def _read(diagnosis: Diagnosis, queue: _Queue, group: str, number: int, offset: int) -> Finding:
    """Pull the message by its offset, which leaves the group's own offset alone."""
    where = {"topic": queue.topic, "queueId": str(number), "bname": queue.broker}
    fields = {**where, **reading_fields(group, offset, 1)}
    code: object = "none"
    remark: object = None
    for _ in range(_TRIES):
        try:
            answer = await wire.ask(queue.line, RequestCode.PULL_MESSAGE, fields, speaker=_SPEAKER)
        except (Unanswered, Unreachable) as error:
            remark = error
            break
        if answer.code == ResponseCode.SUCCESS:
            (message, *_) = messages.decode_messages(answer.body)
            # The message was stored between its send and the response: as good as reading the clock.
            diagnosis.stored = message.store_timestamp / 1000 - message.born_timestamp / 1000
            return finding("topic.received", group=group)
        code, remark = answer.code, answer.remark
        if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            return _unknown_group(diagnosis, group, queue.broker)
        if answer.code not in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
            break
        await asyncio.sleep(_PAUSE)
    return finding("topic.not_received", topic=queue.topic, group=group, code=code, remark=remark)


async def _send_over_grpc(diagnosis: Diagnosis, topic: str) -> Finding:
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with calling(diagnosis) as rpcs:
            answer = await rpcs.send(topic, _BODY)
    except rpc.Refused as error:
        return finding("topic.denied", topic=topic, action="a message over gRPC", code="none", remark=error)
    if answer.status.code != Code.OK:
        return _denied(diagnosis, topic, "a message over gRPC", answer.status.code, answer.status.message, "Pub")
    return finding("topic.sent", topic=topic, protocol="gRPC", milliseconds=1000 * (loop.time() - began))
