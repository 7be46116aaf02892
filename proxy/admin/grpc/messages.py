"""QueryMessage: by id, by key, or by time."""

from collections.abc import Callable, Iterable
from contextlib import aclosing

from google.protobuf.timestamp_pb2 import Timestamp

from grpc_gateway import validation
from grpc_gateway.message_decoding import from_stored
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code, Message
from proxy.admin.grpc import answers
from proxy.admin.grpc.errors import Denied
from proxy.admin.grpc.scan import Cursor, Scan, ScanFilter
from proxy.operations.failures import OperationFailed
from proxy.operations.messages import message_lookup
from proxy.operations.messages.browsing import check_search
from proxy.operations.messages.message_lookup import Found
from proxy.operations.services import AdminServices
from remoting.message_query import EVER

_DEFAULT, _MAX = 32, 1_000
# Maximum bytes of messages in a response: gRPC clients accept 4 MiB by default.
_FULL = 3 * 2**20
# The system properties for callers who may not read contents; born_host is the address of the producer.
_PUBLIC = frozenset(
    (
        *("tag", "message_id", "message_type", "body_encoding", "born_timestamp", "store_timestamp", "store_host"),
        *("queue_id", "queue_offset", "delivery_attempt"),
    )
)
_Show = Callable[[Found], Message]


async def query_message(services: AdminServices, request: pb.ListMessageRequest) -> pb.ListMessageResponse:
    """Return messages of a topic, with their bodies.

    By message_id or message_key, in pages of page_num and page_size; or by time, filtered by the tags of
    `subscription`, broker_name and queue_id: a response with a scroll_id has further messages behind it, even if it
    contains none. Raises Refused, RemotingError.
    """
    return await _query(services, request, _shown)


async def query_without_contents(services: AdminServices, request: pb.ListMessageRequest) -> pb.ListMessageResponse:
    """Return messages as `query_message` does, without bodies, keys and properties.

    Raises Denied for a search by key, Refused, RemotingError.
    """
    key = request.message_key if request.WhichOneof("search_key") == "message_key" else None
    try:
        check_search(contents=False, key=key)
    except OperationFailed as error:
        raise Denied(Code.FORBIDDEN, "contents", str(error)) from None
    return await _query(services, request, _shown_without_contents)


async def _query(services: AdminServices, request: pb.ListMessageRequest, show: _Show) -> pb.ListMessageResponse:
    topic = answers.topic(request.topic)
    key = request.WhichOneof("search_key")
    if key == "lite_topic":
        raise Refused(Code.NOT_IMPLEMENTED, "messages of a lite topic cannot be listed")
    if key is not None and not getattr(request, key):
        raise Refused(Code.BAD_REQUEST, f"{key} is empty")
    if key == "message_id":
        one = await message_lookup.by_id(services, topic, request.message_id)
        return _listed([] if one is None else [show(one)])
    if key == "message_key":
        begin, end = _times(request)
        found = await message_lookup.by_key(services, topic, request.message_key, begin, end)
        return _listed(_fitting(_page(found, request), show))
    return await _scan(services, topic, request, show)


async def _scan(
    services: AdminServices, topic: str, request: pb.ListMessageRequest, show: _Show
) -> pb.ListMessageResponse:
    if request.page_num > 1:
        raise Refused(Code.BAD_REQUEST, "use scroll_id, not page_num, to continue a list of all messages")
    begin, end = _times(request)
    wanted = ScanFilter(
        begin,
        end,
        request.subscription or "*",
        request.broker_name or None,
        request.queue_id if request.HasField("queue_id") else None,
    )
    cursor = Cursor.parse(request.scroll_id) if request.scroll_id else Cursor()
    scan = Scan(services.replica, await services.replica.core.backend.route(topic), wanted, cursor)
    listed: list[Message] = []
    limit, size = _limit(request), 0
    async with aclosing(scan.messages()) as found:
        async for one in found:
            message = show(one)
            size += message.ByteSize()
            if listed and size > _FULL:
                scan.cursor = Cursor.at(one)
                break
            listed.append(message)
            if len(listed) == limit:
                break
    return _listed(listed, "" if scan.cursor is None else str(scan.cursor))


def _fitting(found: Iterable[Found], show: _Show) -> list[Message]:
    listed: list[Message] = []
    size = 0
    for one in found:
        message = show(one)
        size += message.ByteSize()
        if listed and size > _FULL:
            break
        listed.append(message)
    return listed


def _listed(messages: list[Message], following: str = "") -> pb.ListMessageResponse:
    if not messages and not following:
        raise Refused(Code.MESSAGE_NOT_FOUND, "the topic has no such message, or has it no more")
    return pb.ListMessageResponse(status=answers.ok_status(), messages=messages, scroll_id=following)


def _shown(one: Found) -> Message:
    stored = one.message
    return from_stored(stored, topic=stored.topic, delivery_attempt=stored.reconsume_times + 1)


def _shown_without_contents(one: Found) -> Message:
    message = _shown(one)
    system = message.system_properties
    for field, _ in system.ListFields():
        if field.name not in _PUBLIC:
            system.ClearField(field.name)
    system.born_host = one.message.born_host[0]
    message.ClearField("user_properties")
    message.ClearField("body")
    return message


def _page(found: list[Found], request: pb.ListMessageRequest) -> list[Found]:
    limit = _limit(request)
    start = (max(request.page_num, 1) - 1) * limit
    return found[start : start + limit]


def _limit(request: pb.ListMessageRequest) -> int:
    wanted = [number for number in (request.max_message_nums, request.page_size) if number > 0]
    return min(*wanted, _MAX) if wanted else _DEFAULT


def _times(request: pb.ListMessageRequest) -> tuple[int, int]:
    begin = _milliseconds(request.begin_timestamp)
    return begin, _milliseconds(request.end_timestamp) if request.HasField("end_timestamp") else EVER


def _milliseconds(moment: Timestamp) -> int:
    """Return milliseconds since 1970. Raises Refused."""
    value = validation.milliseconds(moment)
    if not 0 <= value <= EVER:
        raise Refused(Code.BAD_REQUEST, f"not a time: {moment.seconds} s since 1970")
    return value
