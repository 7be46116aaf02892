"""SEND_REPLY_MESSAGE: an answer to a request goes to the client that waits for it, and is stored."""

import asyncio
from functools import partial

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.request import Answer, Reply, Request
from proxy.embedded.broker.sending import Header, composed, message_id, sent_pairs, writable_topic
from remoting import command as commands
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand


def reply(broker: Broker, request: Request) -> Answer:
    """The answer says whether the reply has reached its requester."""
    header = Header(request)
    topic = writable_topic(broker, header)
    pairs = sent_pairs(broker, header)
    message = composed(broker, request, header, topic)
    fields = {
        properties.MSG_REGION: broker.settings.region,
        properties.TRACE_SWITCH: broker.trace_switch,
        "msgId": "0",
        "queueId": str(message.queue_id),
        "queueOffset": "0",
    }
    requester = pairs.get(properties.MESSAGE_REPLY_TO_CLIENT)
    push = _push(broker, request, header, dict(pairs))
    if broker.settings.store_replies:
        stored = broker.intake.put(message, pairs, request.now)
        fields |= {"msgId": message_id(broker, stored), "queueOffset": str(stored.queue_offset)}
    channel = None if requester is None else broker.members.find(requester)
    if channel is None:
        return _unpushed(fields, f"the client {requester} that asked is not connected")
    asked = broker.push(channel, push)
    if asked is None:
        return _unpushed(fields, f"the client {requester} that asked cannot be reached")
    answer = broker.future()
    asked.add_done_callback(partial(_pushed, answer, fields))
    return answer


def _push(broker: Broker, request: Request, header: Header, pairs: dict[str, str]) -> RemotingCommand:
    pairs[properties.PUSH_REPLY_TIME] = str(request.now)
    host, port = request.address
    fields = {
        "bornHost": f"{host}:{port}",
        "storeHost": broker.settings.address,
        "storeTimestamp": str(request.now),
        "producerGroup": header.producer_group,
        "topic": header.topic,
        "defaultTopic": header.default_topic,
        "defaultTopicQueueNums": str(header.default_queues),
        "queueId": str(header.queue_id),
        "sysFlag": str(header.sys_flag),
        "bornTimestamp": str(header.born_timestamp),
        "flag": str(header.flag),
        "properties": properties.encode(pairs),
        "reconsumeTimes": str(header.reconsume_times),
        "unitMode": str(header.unit_mode).lower(),
    }
    return commands.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.command.body)


def _pushed(answer: Reply, fields: dict[str, str], asked: "asyncio.Future[RemotingCommand]") -> None:
    if answer.done():
        return
    failed = asked.cancelled() or asked.exception() is not None or asked.result().code != ResponseCode.SUCCESS
    answer.set_result(
        _unpushed(fields, "the client that asked did not take the reply") if failed else commands.success(fields)
    )


def _unpushed(fields: dict[str, str], remark: str) -> RemotingCommand:
    return commands.response(ResponseCode.SYSTEM_ERROR, fields, remark=remark)
