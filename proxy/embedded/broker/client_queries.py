"""What tools ask of a client through the broker: its state, its offsets, to consume a message (Broker2Client)."""

import asyncio
from functools import partial

import orjson

from proxy.core.channel import Channel
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.request import Answer, Refused, Reply, Request
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, ConsumerNotOnline, RemotingError
from remoting.ids import OffsetMessageId


def running_info(broker: Broker, request: Request) -> Answer:
    """GET_CONSUMER_RUNNING_INFO."""
    return _ask(broker, request, dict(request.fields), b"")


def consume_directly(broker: Broker, request: Request) -> Answer:
    """CONSUME_MESSAGE_DIRECTLY: the message goes to the client, its result comes back."""
    fields = dict(request.fields)
    body = b""
    if "msgId" in fields:
        body = _message(broker, fields["msgId"])
    if (topic := broker.topics.get(fields.get("topic", ""))) is not None:
        fields["topicSysFlag"] = str(topic.sys_flag)
    if (group := broker.groups.get(fields.get("consumerGroup", ""))) is not None:
        fields["groupSysFlag"] = str(group.sys_flag)
    fields["brokerName"] = broker.settings.name
    return _ask(broker, request, fields, body)


def _message(broker: Broker, message_id: str) -> bytes:
    try:
        offset = OffsetMessageId.parse(message_id).offset
    except BodyError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
    record = broker.store.record(offset)
    if record is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no message {message_id}")
    return record


def _ask(broker: Broker, request: Request, fields: dict[str, str], body: bytes) -> Answer:
    channel = _client(broker, request.text("consumerGroup"), request.text("clientId"))
    asked = broker.push(channel, commands.request(request.command.code, fields, body))
    if asked is None:
        raise ConsumerNotOnline(f"client {request.text('clientId')} cannot be asked")
    answer = broker.future()
    asked.add_done_callback(partial(_answered, answer))
    return answer


def _client(broker: Broker, group: str, client_id: str) -> Channel:
    consumers = broker.members.consumers.get(group)
    for channel, client in () if consumers is None else consumers.clients.items():
        if client.client_id == client_id and not channel.closed:
            return channel
    raise Refused(ResponseCode.SYSTEM_ERROR, f"client {client_id} of consumer group {group} is not connected")


def _answered(answer: Reply, asked: "asyncio.Future[RemotingCommand]") -> None:
    if answer.done():
        return
    error = asyncio.CancelledError() if asked.cancelled() else asked.exception()
    if error is None:
        reply = asked.result()
        answer.set_result(commands.response(reply.code, dict(reply.fields), reply.body, reply.remark))
        return
    code = error.code if isinstance(error, RemotingError) else ResponseCode.SYSTEM_ERROR
    answer.set_result(commands.response(code, remark=str(error) or "the client did not answer"))


def consumer_status(broker: Broker, request: Request) -> Answer:
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: the offsets as each member of a group knows them."""
    topic, group, wanted = request.text("topic"), request.text("group"), request.fields.get("clientAddr", "")
    consumers = broker.members.consumers.get(group)
    members = {} if consumers is None else {c.client_id: channel for channel, c in consumers.clients.items()}
    if wanted:
        members = {client_id: channel for client_id, channel in members.items() if client_id == wanted}
    if not members:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"nobody is in consumer group {group}")
    fields = {"topic": topic, "group": group}
    asked = {
        client_id: broker.push(channel, commands.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, dict(fields)))
        for client_id, channel in members.items()
    }
    answer = broker.future()
    waiting = {client_id: future for client_id, future in asked.items() if future is not None}
    for future in waiting.values():
        future.add_done_callback(lambda _: _collect(answer, waiting))
    if not waiting:
        raise ConsumerNotOnline(f"nobody of consumer group {group} can be asked")
    return answer


def _collect(answer: Reply, waiting: dict[str, "asyncio.Future[RemotingCommand]"]) -> None:
    if answer.done() or not all(future.done() for future in waiting.values()):
        return
    tables = []
    for client_id, future in waiting.items():
        if not future.cancelled() and future.exception() is None and future.result().code == ResponseCode.SUCCESS:
            tables.append(orjson.dumps(client_id) + b":" + _queue_table(future.result().body))
    answer.set_result(commands.success(body=b'{"consumerTable":{' + b",".join(tables) + b'},"messageQueueTable":{}}'))


def _queue_table(body: bytes) -> bytes:
    """The value of messageQueueTable: its keys are objects, which travel on as they are."""
    _, found, rest = body.partition(b'"messageQueueTable"')
    start, end = rest.find(b"{"), rest.rfind(b"}")
    return rest[start:end].strip() if found and 0 <= start < end else b"{}"
