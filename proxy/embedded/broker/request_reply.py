"""Handler of SEND_REPLY_MESSAGE: a reply is pushed to the client that waits for it, and stored."""

from functools import partial

from proxy.core.channel import Channel
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.request import Answer, Request
from proxy.embedded.broker.sending import Header, message_id, new_message, sent_pairs, writable_topic
from remoting import command as commands
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.outcomes import Reply


def reply(broker: Broker, request: Request) -> Answer:
    """SEND_REPLY_MESSAGE: push and store a reply; the response contains whether the requester received it."""
    header = Header(request)
    topic = writable_topic(broker, header)
    pairs = sent_pairs(broker, header)
    message = new_message(broker, request, header, topic)
    fields = {
        properties.MSG_REGION: broker.settings.region,
        properties.TRACE_SWITCH: broker.trace_switch,
        "msgId": "0",
        "queueId": str(message.queue_id),
        "queueOffset": "0",
    }
    requester = pairs.get(properties.MESSAGE_REPLY_TO_CLIENT)
    push = _push_request(broker, request, header, dict(pairs))
    if broker.settings.store_replies:
        stored = broker.pipeline.append(message, pairs, request.now)
        fields |= {"msgId": message_id(broker, stored), "queueOffset": str(stored.queue_offset)}
    channels = [] if requester is None else broker.members.producer_channels(requester)
    if not channels:
        return _push_failure(fields, f"the requesting client {requester} is not connected")
    reply = broker.future()
    _push(broker, push, channels, reply, fields)
    return reply


def _push(broker: Broker, push: RemotingCommand, channels: list[Channel], reply: Reply, fields: dict[str, str]) -> None:
    """Push a reply to the first of the channels that accepts it: clients of two namespaces may have one client id."""
    pushed = broker.push(channels[0], push.copy())
    if pushed is None:
        reply.set_result(_push_failure(fields, "the requesting client cannot be reached"))
    else:
        pushed.add_done_callback(partial(_pushed, broker, push, channels[1:], reply, fields))


def _push_request(broker: Broker, request: Request, header: Header, pairs: dict[str, str]) -> RemotingCommand:
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


def _pushed(
    broker: Broker,
    push: RemotingCommand,
    others: list[Channel],
    reply: Reply,
    fields: dict[str, str],
    pushed: Reply,
) -> None:
    if reply.done():
        return
    failed = pushed.cancelled() or pushed.exception() is not None or pushed.result().code != ResponseCode.SUCCESS
    if not failed:
        reply.set_result(commands.success(fields))
    elif others:
        _push(broker, push, others, reply, fields)
    else:
        reply.set_result(_push_failure(fields, "the requesting client did not accept the reply"))


def _push_failure(fields: dict[str, str], remark: str) -> RemotingCommand:
    return commands.response(ResponseCode.SYSTEM_ERROR, fields, remark=remark)
