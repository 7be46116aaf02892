"""Reading stored messages of a queue for operators, without a consumer group of their own."""

from proxy.operations import operator_channel
from proxy.operations.operator_channel import BrokerRefused
from proxy.operations.replica import Replica
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.messages import StoredMessage
from remoting.names import TOOLS_GROUP
from remoting.pulling import NOTHING, reading_fields

_MAX_PULL = 32
_NOT_FOUND = NOTHING | {ResponseCode.QUERY_NOT_FOUND}


async def ask(replica: Replica, broker: str, code: RequestCode, fields: dict[str, str]) -> RemotingCommand | None:
    """Return the broker's reply; None if it says that nothing was found. Raises RemotingError."""
    try:
        return await operator_channel.ask(replica.core, broker, code, fields)
    except BrokerRefused as error:
        if error.answer in _NOT_FOUND:
            return None
        raise


async def bounds(replica: Replica, broker: str, topic: str, queue: int) -> tuple[int, int]:
    """Return the offset of a queue's first message and the one after its last. Raises RemotingError."""
    where = {"topic": topic, "queueId": str(queue)}
    first, end = [
        int((await operator_channel.ask(replica.core, broker, code, dict(where))).fields.get("offset", "0"))
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
    ]
    return first, end


async def pull(
    replica: Replica, broker: str, topic: str, queue: int, offset: int, count: int = _MAX_PULL
) -> list[StoredMessage]:
    """Return up to `count` messages from an offset on; none if there are none. Raises RemotingError."""
    stored, _ = await read(replica, broker, topic, queue, offset, count)
    return stored


async def read(
    replica: Replica, broker: str, topic: str, queue: int, offset: int, count: int = _MAX_PULL
) -> tuple[list[StoredMessage], int]:
    """Return up to `count` messages from an offset on, and the offset at which to continue. Raises RemotingError.

    Without messages, and nowhere to continue, the offset is the given one.
    """
    fields = {
        "topic": topic,
        "queueId": str(queue),
        **reading_fields(TOOLS_GROUP, offset, min(count, _MAX_PULL)),
    }
    reply = await ask(replica, broker, RequestCode.PULL_MESSAGE, fields)
    if reply is None:
        return [], offset
    return messages.decode_messages(reply.body), int(reply.fields.get("nextBeginOffset", offset))
