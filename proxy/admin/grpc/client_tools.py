"""PrintThreadStackTrace, VerifyMessage and GetConsumerRunningInfo: requests to a client, wherever it is connected."""

from typing import Any, TypeVar

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code, Resource
from proxy.admin.grpc import answers
from proxy.admin.grpc.groups import everywhere, here
from proxy.core.client_registry import Role
from proxy.core.handlers.tools import query_client
from proxy.operations import client_tools, operator_channel
from proxy.operations.client_tools import ClientQuestion, ClientRefused, Verification, VerifyOrder
from proxy.operations.messages import message_lookup
from proxy.operations.services import AdminServices
from remoting import fastjson
from remoting.codes import RequestCode
from remoting.errors import BodyError
from remoting.fastjson import ObjectKeys

# The result of a listener that has consumed a message (CMResult).
_CONSUMED = frozenset(("CR_SUCCESS", "CR_COMMIT"))
_LONGEST_ID = 512
_Told = TypeVar("_Told", pb.ProcessQueueInfo, pb.ConsumeStatus)


async def print_thread_stack_trace(
    services: AdminServices, request: pb.PrintThreadStackTraceRequest
) -> pb.PrintThreadStackTraceResponse:
    """Return a consumer's thread stacks. Raises Refused, ClientRefused, RemotingError, TimeoutError."""
    client_id = _client_id(request.client_id)
    group = await _group(services, request.group, client_id)
    info = await client_tools.running_info(services, ClientQuestion(group, client_id, stack=True))
    if not info.stack:
        raise Refused(Code.NOT_FOUND, f"the client {client_id} tells nothing of its threads")
    return pb.PrintThreadStackTraceResponse(status=answers.ok_status(), thread_stack_trace=info.stack)


async def verify_message(services: AdminServices, request: pb.VerifyMessageRequest) -> pb.VerifyMessageResponse:
    """Make a consumer consume a message; return OK if it did.

    Raises Refused, ClientRefused, RemotingError, TimeoutError.
    """
    client_id, topic = _client_id(request.client_id), answers.topic(request.topic)
    group = await _group(services, request.group, client_id)
    message = await message_lookup.by_id(services, topic, request.message_id) if request.message_id else None
    if message is None:
        raise Refused(Code.MESSAGE_NOT_FOUND, f"topic {topic} has no message {request.message_id[:80]}")
    wanted = Verification(group=group, topic=topic, broker=message.broker, message_id=message.offset_id)
    verified = await client_tools.verify(services, VerifyOrder(client_id, wanted))
    if verified.result not in _CONSUMED:
        text = f": {verified.remark}" if verified.remark else ""
        raise Refused(Code.FAILED_TO_CONSUME_MESSAGE, f"the client {client_id} answered {verified.result}{text}")
    return pb.VerifyMessageResponse(status=answers.ok_status())


async def get_consumer_running_info(
    services: AdminServices, request: pb.GetConsumerRunningInfoRequest
) -> pb.GetConsumerRunningInfoResponse:
    """Return a consumer's running info; for a gRPC client the replica's own knowledge, because the protocol has no such
    request.

    Raises Refused, ClientRefused, RemotingError, TimeoutError.
    """
    client_id = _client_id(request.client_id)
    group = await _group(services, request.group, client_id)
    fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
    reply = await operator_channel.handle(
        services.replica.core, query_client, RequestCode.GET_CONSUMER_RUNNING_INFO, fields
    )
    if reply.code != 0:
        raise ClientRefused(f"the answer was {reply.code}: {reply.remark or 'without a word'}")
    data = fastjson.loads(reply.body)
    if not isinstance(data, dict):
        raise BodyError("the client's answer is not an object")
    return pb.GetConsumerRunningInfoResponse(status=answers.ok_status(), consumer_running_info=_info(data))


def _info(data: dict[str, Any]) -> pb.ConsumerRunningInfo:
    table = data.get("mqTable")
    return pb.ConsumerRunningInfo(
        properties={str(key): str(value) for key, value in (data.get("properties") or {}).items()},
        subscriptions={
            str(item.get("topic")): answers.expression(
                str(item.get("subString") or "*"), str(item.get("expressionType") or "TAG")
            )
            for item in data.get("subscriptionSet") or ()
        },
        message_queue_table=[
            _queue(queue, held or {})
            for queue, held in (table.pairs if isinstance(table, ObjectKeys) else ())
            if isinstance(queue, dict)
        ],
        consume_status_table={str(topic): _rates(row or {}) for topic, row in (data.get("statusTable") or {}).items()},
    )


# Fields of ProcessQueueInfo by their names in Java, one of which is misspelt there.
_HELD = {
    "commit_offset": "commitOffset",
    "cached_msg_min_offset": "cachedMsgMinOffset",
    "cached_msg_max_offset": "cachedMsgMaxOffset",
    "cached_msg_count": "cachedMsgCount",
    "cached_msg_size_in_mib": "cachedMsgSizeInMiB",
    "transaction_msg_min_offset": "transactionMsgMinOffset",
    "transaction_msg_max_offset": "transactionMsgMaxOffset",
    "transaction_msg_count": "transactionMsgCount",
    "locked": "locked",
    "try_unlock_times": "tryUnlockTimes",
    "last_lock_timestamp": "lastLockTimestamp",
    "dropped": "droped",
    "last_pull_timestamp": "lastPullTimestamp",
    "last_consume_timestamp": "lastConsumeTimestamp",
}
_RATES = {
    "receive_rt": "pullRT",
    "receive_tps": "pullTPS",
    "consume_rt": "consumeRT",
    "consume_ok_tps": "consumeOKTPS",
    "consume_failed_tps": "consumeFailedTPS",
    "consume_failed_msgs": "consumeFailedMsgs",
}


def _queue(queue: dict[str, Any], held: dict[str, Any]) -> pb.MessageQueueItem:
    known: dict[str, Any] = {name: held[java] for name, java in _HELD.items() if java in held}
    return pb.MessageQueueItem(
        message_queue=answers.queue_of(
            str(queue.get("topic", "")), str(queue.get("brokerName", "")), int(queue.get("queueId", -1))
        ),
        process_queue_info=_parse_reply(pb.ProcessQueueInfo, known),
    )


def _rates(row: dict[str, Any]) -> pb.ConsumeStatus:
    return _parse_reply(pb.ConsumeStatus, {name: row[java] for name, java in _RATES.items() if java in row})


def _parse_reply(kind: type[_Told], values: dict[str, Any]) -> _Told:
    """Parse a client's reply, which may be anything. Raises BodyError."""
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise BodyError(f"the client's answer has a value that cannot be: {error}") from None


def _client_id(text: str) -> str:
    if not 0 < len(text) <= _LONGEST_ID:
        raise Refused(Code.BAD_REQUEST, f"a client id has 1 to {_LONGEST_ID} characters")
    return text


async def _group(services: AdminServices, group: Resource, client_id: str) -> str:
    """Return the request's group if the client is a member; else one of the client's groups. Raises Refused."""
    if not group.name:
        member = services.replica.registry.find(client_id)
        if member is not None and member.consumers:
            return min(member.consumers)
        # The client may be connected to another worker.
        for one in await here(services, None):
            if any(known.info.client_id == client_id for known in one.members):
                return one.name
        raise Refused(Code.NOT_FOUND, f"no consumer {client_id} is connected here: name its group")
    name = answers.group(group)
    # Brokers use the same code for an unknown client and for a failing one.
    known = services.replica.registry.find(client_id, Role.CONSUMER, name) is not None
    if known or any(member.info.client_id == client_id for member in (await everywhere(services, name)).members):
        return name
    raise Refused(Code.NOT_FOUND, f"no consumer {client_id} of group {name} is connected")
