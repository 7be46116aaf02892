"""Places of half messages by the ids that clients get, which are the ids of the messages as at the official proxy.

A broker passes a message's id on as its transaction id (SendMessageProcessor), and gives it to the checker and to
receivers as `__transactionId__` (TransactionalMessageBridge). Brokers end a transaction by the place of its half
message. This process knows the places of those it has sent or checked last; brokers find the others in their index.
"""

import asyncio
from typing import Final

from grpc_gateway.core import Core
from grpc_gateway.transaction_id import TransactionId
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable, TopicNotExist
from remoting.message_query import unique_id_query
from remoting.messages import StoredMessage
from remoting.names import HALF_TOPIC

# Half messages of a process, of 500 bytes each at most.
_LIMIT: Final = 50_000
# Half messages of a broker's reply.
_MAX_FOUND: Final = 32
# Characters of the longest id that is looked up.
_MAX_ID: Final = 256
# Seconds before each look-up: brokers index a message a moment after it was stored.
_DELAYS: Final = (0.0, 0.1, 0.3, 0.8)
# Look-ups at once. Brokers return all half messages with an id: there is another one after each transaction check.
_LOOKUPS: Final = 8


class HalfMessages:
    """Half messages that this process has sent or checked last, and a look-up of others at their brokers."""

    def __init__(self, core: Core, limit: int = _LIMIT) -> None:
        self._core = core
        self._limit = limit
        # By topic and message id, in the order of their additions.
        self._known: dict[tuple[str, str], TransactionId] = {}
        self._lookups = asyncio.Semaphore(_LOOKUPS)

    def add(self, topic: str, transaction: TransactionId) -> None:
        """Add the half message that a broker has stored last for a transaction."""
        key = (topic, transaction.message_id)
        self._known.pop(key, None)
        if len(self._known) >= self._limit:
            del self._known[next(iter(self._known))]
        self._known[key] = transaction

    def known(self, topic: str, message_id: str) -> TransactionId | None:
        """Return the transaction of a half message if this process knows it."""
        return self._known.get((topic, message_id))

    async def look_up(self, topic: str, message_id: str) -> TransactionId | None:
        """Return the transaction whose half message the brokers of the topic have stored last; None without any.

        Raises RemotingError if a broker that may have it does not answer.
        """
        if len(message_id) > _MAX_ID or not message_id.isprintable():
            return None
        try:
            brokers = (await self._core.route(topic)).brokers
        except TopicNotExist:
            return None
        for delay in _DELAYS:
            await asyncio.sleep(delay)
            async with self._lookups:
                found = await self._query(brokers, topic, message_id)
            if found is not None:
                return found
        return None

    async def _query(self, brokers: tuple[str, ...], topic: str, message_id: str) -> TransactionId | None:
        asked = [broker for broker in brokers if broker not in self._core.unresponsive_brokers()]
        replies = await asyncio.gather(
            *(self._core.own_request(broker, _query_of(broker, message_id)) for broker in asked), return_exceptions=True
        )
        found: list[tuple[int, int, TransactionId]] = []
        failure: BaseException | None = None
        if len(asked) < len(brokers):
            failure = ServiceUnavailable("a broker of the topic does not answer")
        for broker, reply in zip(asked, replies, strict=True):
            if isinstance(reply, BaseException):
                failure = reply
                continue
            if reply.code == ResponseCode.SUCCESS:
                stored = messages.decode_messages(reply.body)
                found += [_ranked(broker, half) for half in stored if _belongs(half, topic, message_id)]
            elif reply.code != ResponseCode.QUERY_NOT_FOUND:
                failure = ServiceUnavailable(f"broker {broker} has refused to look a half message up: {reply.remark}")
        if found:
            return max(found, key=lambda one: one[:2])[2]
        if failure is not None:
            raise failure
        return None


def _query_of(broker: str, message_id: str) -> RemotingCommand:
    fields = {**unique_id_query(HALF_TOPIC, message_id, _MAX_FOUND), "bname": broker}
    return commands.request(RequestCode.QUERY_MESSAGE, fields)


def _belongs(half: StoredMessage, topic: str, message_id: str) -> bool:
    # Brokers look up by a hash, and by keys too.
    return half.get(properties.UNIQ_CLIENT_MESSAGE_ID) == message_id and half.get(properties.REAL_TOPIC) == topic


def _ranked(broker: str, half: StoredMessage) -> tuple[int, int, TransactionId]:
    """Return the sort key of a half message, with its transaction last.

    Before a check, brokers store the half message again: the earlier one no longer counts.
    """
    message_id = half.get(properties.UNIQ_CLIENT_MESSAGE_ID) or ""
    transaction = TransactionId(broker, half.queue_offset, half.commit_log_offset, message_id)
    return half.store_timestamp, half.commit_log_offset, transaction
