"""Recipients of brokers' requests: the client on a membership connection that a request is for."""

from collections.abc import Callable

from proxy.backends.cluster.membership_connections import MembershipConnection
from proxy.core.channel import Channel
from proxy.core.client_registry import Role
from proxy.core.handlers.lite import restore_id
from remoting import messages, properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ConsumerNotOnline, UnsupportedRequest

_FindRecipient = Callable[[MembershipConnection, RemotingCommand], Channel | None]


def recipient(connection: MembershipConnection, command: RemotingCommand) -> Channel:
    """Return the client that a broker's request is for. Raises UnsupportedRequest, ConsumerNotOnline."""
    find = RECIPIENTS.get(command.code)
    if find is None:
        raise UnsupportedRequest(f"request {command.code} of a broker to a client is not supported")
    channel = find(connection, command)
    if channel is None or channel.closed:
        raise ConsumerNotOnline("the client is not connected any more")
    return channel


def _consumer(field: str) -> _FindRecipient:
    """Return a function that finds the member of the consumer group in this ext field."""
    return lambda connection, command: connection.slots.get((Role.CONSUMER, command.fields.get(field, "")))


def _checked_producer(connection: MembershipConnection, command: RemotingCommand) -> Channel | None:
    """Return the member of the producer group in the half message's property PGROUP."""
    half = messages.decode_messages(command.body)
    group = properties.get(half[0].properties, properties.PRODUCER_GROUP) if half else None
    return connection.slots.get((Role.PRODUCER, group or ""))


def _subscriber(connection: MembershipConnection, command: RemotingCommand) -> Channel | None:
    """Return the member of the group in the ext field consumerGroup, if it has the client id in clientId."""
    channel = connection.slots.get((Role.CONSUMER, command.fields.get("consumerGroup", "")))
    return channel if channel is not None and channel.session.client_id == restore_id(command) else None


def _requester(connection: MembershipConnection, command: RemotingCommand) -> Channel | None:
    """Return the client that waits for this reply message, by the client id in the message's properties."""
    client_id = properties.get(command.fields.get("properties", ""), properties.MESSAGE_REPLY_TO_CLIENT)
    return None if client_id is None else connection.channel_of(client_id)


# Every request of a broker to a client has a line.
RECIPIENTS: dict[int, _FindRecipient] = {
    RequestCode.CHECK_TRANSACTION_STATE: _checked_producer,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _consumer("consumerGroup"),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _consumer("group"),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _consumer("group"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _consumer("consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consumer("consumerGroup"),
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: _requester,
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE: _subscriber,
}
