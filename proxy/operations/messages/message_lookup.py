"""Messages by id and by key."""

from dataclasses import dataclass

from proxy.operations import broker_requests
from proxy.operations.replica import Replica
from proxy.operations.services import AdminServices
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError
from remoting.ids import OffsetMessageId
from remoting.message_query import key_query, unique_id_query
from remoting.messages import StoredMessage

# Response codes without messages.
NOTHING = (ResponseCode.QUERY_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST)
# Messages of one reply (maxMsgsNumBatch of brokers).
MAX_FOUND = 64
# Messages with one unique id.
_MAX_MATCHES = 32


@dataclass(frozen=True, slots=True)
class Found:
    """A message, and its broker."""

    broker: str
    message: StoredMessage

    @property
    def offset_id(self) -> str:
        """Return the message's id at its broker, which encodes its place."""
        return str(OffsetMessageId(*self.message.store_host, self.message.commit_log_offset))


async def by_id(services: AdminServices, topic: str, message_id: str) -> Found | None:
    """Return the message with this unique id, or with this offset message id. Raises RemotingError."""
    found = [
        one
        for one in await _query(services, unique_id_query(topic, message_id, MAX_FOUND))
        # Brokers look up by a hash.
        if one.message.get(properties.UNIQ_CLIENT_MESSAGE_ID) == message_id
    ]
    return found[0] if found else await _by_offset(services, topic, message_id)


async def unique_matches(replica: Replica, broker: str, topic: str, unique_id: str) -> list[StoredMessage]:
    """Return the messages with a unique id that a broker holds in a topic. Raises RemotingError."""
    fields = unique_id_query(topic, unique_id, _MAX_MATCHES)
    nothing = (ResponseCode.QUERY_NOT_FOUND,)
    reply = await broker_requests.found(replica.core, broker, RequestCode.QUERY_MESSAGE, fields, nothing)
    found = [] if reply is None else messages.decode_messages(reply.body)
    # Brokers search by a hash of the id.
    return [message for message in found if message.get(properties.UNIQ_CLIENT_MESSAGE_ID) == unique_id]


async def by_key(services: AdminServices, topic: str, key: str, begin: int, end: int) -> list[Found]:
    """Return messages with this key that were stored from `begin` to `end` (ms since 1970), the newest first.

    Brokers return at most the newest 64 each; `key_search` finds more. Raises RemotingError.
    """
    found = await _query(services, key_query(topic, key, MAX_FOUND, begin, end))
    return [one for one in found if key in (one.message.get(properties.KEYS) or "").split()]


async def _query(services: AdminServices, fields: dict[str, str]) -> list[Found]:
    core, topic = services.replica.core, fields["topic"]
    names = (await core.backend.route(topic)).brokers
    asked = await broker_requests.ask_each(core, names, RequestCode.QUERY_MESSAGE, fields, NOTHING)
    found = [
        Found(broker, message)
        for broker, reply in asked.replies.items()
        # A broker returns the oldest first: reversed, so that the order is right within a millisecond.
        for message in reversed(messages.decode_messages(reply.body))
        if message.topic == topic
    ]
    return sorted(found, key=lambda one: one.message.store_timestamp, reverse=True)


async def _by_offset(services: AdminServices, topic: str, text: str) -> Found | None:
    try:
        wanted = OffsetMessageId.parse(text)
    except BodyError:
        return None
    core = services.replica.core
    names = (await core.backend.route(topic)).brokers
    # A broker answers SYSTEM_ERROR for an offset without a message.
    nothing = (*NOTHING, ResponseCode.SYSTEM_ERROR)
    asked = await broker_requests.ask_each(
        core, names, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(wanted.offset)}, nothing
    )
    for broker, reply in asked.replies.items():
        one = Found(broker, messages.decode_message(reply.body))
        if one.message.topic == topic and one.offset_id == str(wanted):
            return one
    return None
