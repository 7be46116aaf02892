"""Handlers of tools' requests that the broker forwards to a client (RocketMQ's Broker2Client)."""

import asyncio
from functools import partial

import orjson

from proxy.core.channel import Channel
from proxy.core.unanswered import failure_code
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused
from proxy.embedded.broker.request import Answer, Request
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError, ConsumerNotOnline
from remoting.ids import OffsetMessageId
from remoting.outcomes import Reply
from remoting.signature import without_signature


def running_info(broker: Broker, request: Request) -> Answer:
    """GET_CONSUMER_RUNNING_INFO: return the state of a client."""
    return _forward(broker, request, dict(request.fields), b"")


def consume_directly(broker: Broker, request: Request) -> Answer:
    """CONSUME_MESSAGE_DIRECTLY: have a client consume a message, and return its result."""
    fields = dict(request.fields)
    body = b""
    if "msgId" in fields:
        body = _message(broker, fields["msgId"])
    if (topic := broker.topics.get(fields.get("topic", ""))) is not None:
        fields["topicSysFlag"] = str(topic.sys_flag)
    if (group := broker.groups.get(fields.get("consumerGroup", ""))) is not None:
        fields["groupSysFlag"] = str(group.sys_flag)
    fields["brokerName"] = broker.settings.name
    return _forward(broker, request, fields, body)


def _message(broker: Broker, message_id: str) -> bytes:
    try:
        offset = OffsetMessageId.parse(message_id).offset
    except BodyError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
    record = broker.store.record(offset)
    if record is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no message {message_id}")
    return record


def _forward(broker: Broker, request: Request, fields: dict[str, str], body: bytes) -> Answer:
    channel = _client(broker, request.text("consumerGroup"), request.text("clientId"))
    # Unlike in RocketMQ, without the tool's signature: the client could use it in other requests.
    pushed = broker.push(channel, commands.request(request.command.code, without_signature(fields), body))
    if pushed is None:
        raise ConsumerNotOnline(f"client {request.text('clientId')} cannot be reached")
    reply = broker.future()
    pushed.add_done_callback(partial(_complete, reply))
    return reply


def _client(broker: Broker, group: str, client_id: str) -> Channel:
    consumers = broker.members.consumers.get(group)
    for channel, client in () if consumers is None else consumers.clients.items():
        if client.client_id == client_id and not channel.closed:
            return channel
    raise Refused(ResponseCode.SYSTEM_ERROR, f"client {client_id} of consumer group {group} is not connected")


def _complete(reply: Reply, pushed: Reply) -> None:
    """Give the tool's reply the outcome of the request that was pushed to the client."""
    if reply.done():
        return
    error = asyncio.CancelledError() if pushed.cancelled() else pushed.exception()
    if error is None:
        response = pushed.result()
        reply.set_result(commands.response(response.code, dict(response.fields), response.body, response.remark))
        return
    reply.set_result(commands.response(failure_code(error), remark=str(error) or "the client did not answer"))


def consumer_status(broker: Broker, request: Request) -> Answer:
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: return the offsets of each member of a group."""
    topic, group, chosen = request.text("topic"), request.text("group"), request.fields.get("clientAddr", "")
    consumers = broker.members.consumers.get(group)
    members = {} if consumers is None else {c.client_id: channel for channel, c in consumers.clients.items()}
    if chosen:
        members = {client_id: channel for client_id, channel in members.items() if client_id == chosen}
    if not members:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"consumer group {group} has no members")
    fields = {"topic": topic, "group": group}
    pushed = {
        client_id: broker.push(channel, commands.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, dict(fields)))
        for client_id, channel in members.items()
    }
    reply = broker.future()
    pending = {client_id: future for client_id, future in pushed.items() if future is not None}
    for future in pending.values():
        future.add_done_callback(lambda _: _collect(reply, pending))
    if not pending:
        raise ConsumerNotOnline(f"no member of consumer group {group} can be reached")
    return reply


def _collect(reply: Reply, pushed: dict[str, Reply]) -> None:
    if reply.done() or not all(future.done() for future in pushed.values()):
        return
    tables = []
    for client_id, future in pushed.items():
        if not future.cancelled() and future.exception() is None and future.result().code == ResponseCode.SUCCESS:
            tables.append(orjson.dumps(client_id) + b":" + _queue_table(future.result().body))
    reply.set_result(commands.success(body=b'{"consumerTable":{' + b",".join(tables) + b'},"messageQueueTable":{}}'))


def _queue_table(body: bytes) -> bytes:
    """Return the value of messageQueueTable unchanged, because its keys are objects."""
    _, separator, rest = body.partition(b'"messageQueueTable"')
    start, end = rest.find(b"{"), rest.rfind(b"}")
    return rest[start:end].strip() if separator and 0 <= start < end else b"{}"
