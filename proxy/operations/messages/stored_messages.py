"""Reading stored messages of a queue for operators, without a consumer group of their own."""

from collections.abc import Iterable, Iterator

from proxy.operations import broker_requests
from proxy.operations.broker_requests import TIMEOUT, BrokerRefused
from proxy.operations.replica import Replica
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError
from remoting.messages import StoredMessage
from remoting.names import TOOLS_GROUP
from remoting.pulling import NOTHING, reading_fields

_MAX_PULL = 32


async def bounds(replica: Replica, broker: str, topic: str, queue: int) -> tuple[int, int]:
    """Return the offset of a queue's first message and the one after its last. Raises RemotingError."""
    where = _fields(topic, queue)
    first = await _offset(replica, broker, RequestCode.GET_MIN_OFFSET, where, TIMEOUT)
    return first, await find_end(replica, broker, topic, queue)


async def find_end(replica: Replica, broker: str, topic: str, queue: int, *, timeout: float = TIMEOUT) -> int:
    """Return the offset after a queue's last message. Raises RemotingError."""
    return await _offset(replica, broker, RequestCode.GET_MAX_OFFSET, _fields(topic, queue), timeout)


async def find_stored_at(
    replica: Replica, broker: str, topic: str, queue: int, time: int, *, timeout: float = TIMEOUT
) -> int:
    """Return the offset of the first message that was stored at a time, in ms since 1970, or later.

    Raises RemotingError.
    """
    fields = {**_fields(topic, queue), "timestamp": str(time)}
    return await _offset(replica, broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields, timeout)


async def pull(
    replica: Replica, broker: str, topic: str, queue: int, offset: int, count: int = _MAX_PULL
) -> list[StoredMessage]:
    """Return up to `count` messages from an offset on; none if there are none. Raises RemotingError."""
    stored, _ = await read(replica, broker, topic, queue, offset, count)
    return stored


async def read(
    replica: Replica,
    broker: str,
    topic: str,
    queue: int,
    offset: int,
    count: int = _MAX_PULL,
    *,
    tags: str = "*",
    timeout: float = TIMEOUT,
) -> tuple[list[StoredMessage], int]:
    """Return up to `count` messages from an offset on, and the offset at which to continue. Raises RemotingError.

    Without messages, and nowhere to continue, the offset is the given one. tags: as in a subscription; brokers compare
    only their hashes.
    """
    fields = {
        **_fields(topic, queue),
        **reading_fields(TOOLS_GROUP, offset, min(count, _MAX_PULL), expression=tags),
    }
    reply = await broker_requests.request(replica.core, broker, RequestCode.PULL_MESSAGE, fields, timeout=timeout)
    if reply.code not in (ResponseCode.SUCCESS, *NOTHING):
        raise BrokerRefused(broker, reply.code, reply.remark)
    found = messages.decode_messages(reply.body) if reply.code == ResponseCode.SUCCESS else []
    return found, int(reply.fields.get("nextBeginOffset", offset))


def unwrap(records: Iterable[StoredMessage]) -> Iterator[StoredMessage]:
    """Yield the messages of stored records: of an inner batch each of its messages, of others the record itself.

    An inner batch that cannot be decoded is one message, as consumers get it.
    """
    for record in records:
        count = 0
        try:
            for message in messages.iterate_messages(record):
                count += 1
                yield message
        except BodyError:
            if not count:
                yield record


def _fields(topic: str, queue: int) -> dict[str, str]:
    return {"topic": topic, "queueId": str(queue)}


async def _offset(replica: Replica, broker: str, code: RequestCode, fields: dict[str, str], timeout: float) -> int:
    reply = await broker_requests.ask(replica.core, broker, code, fields, timeout=timeout)
    return int(reply.fields.get("offset", "0"))
