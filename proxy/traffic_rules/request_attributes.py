"""Attributes of requests and connections that rules read."""

from collections.abc import Hashable

from protocol_negotiation.peer import Peer
from proxy.core.channel import ChannelProtocol
from proxy.core.context import Context
from proxy.traffic_rules import batches
from proxy.traffic_rules.group_fields import MORE_GROUP_FIELDS
from remoting import json_names as json_bodies
from remoting.batch_flag import is_batch
from remoting.codes import RequestCode, ToolCode, version_text

# Requests with topics and groups in their bodies, and whether the keys are those of batch acks.
_BODIES_WITH_NAMES: dict[int, bool] = {
    RequestCode.LOCK_BATCH_MQ: False,
    RequestCode.UNLOCK_BATCH_MQ: False,
    RequestCode.QUERY_ASSIGNMENT: False,
    RequestCode.CHECK_CLIENT_CONFIG: False,
    RequestCode.LITE_SUBSCRIPTION_CTL: False,
    RequestCode.HEART_BEAT: False,
    RequestCode.BATCH_ACK_MESSAGE: True,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: False,
    ToolCode.UPDATE_AND_CREATE_TOPIC_LIST: False,
    ToolCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: False,
    ToolCode.SET_MESSAGE_REQUEST_MODE: False,
}


class ConnectionAttributes:
    """Attributes of a new connection, over which no request has come yet."""

    __slots__ = ("peer", "protocol", "user")

    code = -1
    client_id: str | None = None
    language: str | None = None
    version: str | None = None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    messages = 0
    size = 0

    def __init__(self, peer: Peer, protocol: ChannelProtocol, user: str | None = None) -> None:
        self.peer = peer
        self.protocol = protocol
        self.user = user

    @property
    def listener(self) -> str:
        return self.peer.listener

    @property
    def server_name(self) -> str | None:
        return None if self.peer.tls is None else self.peer.tls.server_name

    @property
    def certificate(self) -> str | None:
        return None if self.peer.tls is None else self.peer.tls.subject

    @property
    def address(self) -> str:
        return self.peer.address.host

    @property
    def connection(self) -> Hashable:
        return self.peer.number


class RequestAttributes:
    """Attributes of an in-flight request. Expensive ones are computed when a rule reads them."""

    __slots__ = ("_body_names", "code", "context", "stored_topics")

    def __init__(self, context: Context) -> None:
        # Topics of the message that the request names by its offset, if they are known.
        self.stored_topics: tuple[str, ...] | None = None
        self.context = context
        self.code = context.code
        self._body_names: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    @property
    def protocol(self) -> str:
        return self.context.channel.protocol

    @property
    def listener(self) -> str:
        return self.context.channel.peer.listener

    @property
    def server_name(self) -> str | None:
        tls = self.context.channel.peer.tls
        return None if tls is None else tls.server_name

    @property
    def certificate(self) -> str | None:
        tls = self.context.channel.peer.tls
        return None if tls is None else tls.subject

    @property
    def address(self) -> str:
        return self.context.channel.peer.address.host

    @property
    def client_id(self) -> str | None:
        channel = self.context.channel
        client_id = channel.session.client_id
        # The identity of a remoting client has nothing that the session lacks.
        return client_id if client_id or channel.protocol == "remoting" else channel.identity.client_id

    @property
    def user(self) -> str | None:
        principal = self.context.principal
        return principal.user if principal.failure is None else None

    @property
    def language(self) -> str | None:
        context = self.context
        # Remoting clients send it with every request, even before the first heartbeat.
        return context.command.language if self.protocol == "remoting" else context.channel.identity.language

    @property
    def version(self) -> str | None:
        context = self.context
        if self.protocol == "remoting":
            return version_text(context.command.version)
        return context.channel.identity.version

    @property
    def topics(self) -> tuple[str, ...]:
        if self.code in _BODIES_WITH_NAMES:
            return self._names_in_body()[0]
        if self.stored_topics is not None:
            return self.stored_topics
        topic = self.context.topic
        return () if topic is None else (topic,)

    @property
    def groups(self) -> tuple[str, ...]:
        if self.code in _BODIES_WITH_NAMES:
            return self._names_in_body()[1]
        context = self.context
        group = context.group
        more = MORE_GROUP_FIELDS.get(self.code)
        if more is None:
            return () if group is None else (group,)
        names = (group, *(context.fields.get(field) for field in more))
        return tuple(name for name in names if name)

    def _names_in_body(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the topics and groups in the body.

        Raises BodyError if the body is unreadable: a broker might read it, and the rules would be bypassed.
        """
        if self._body_names is None:
            batch_ack = _BODIES_WITH_NAMES[self.code]
            self._body_names = json_bodies.collect_names(self.context.command.body, batch_ack)
        return self._body_names

    @property
    def connection(self) -> Hashable:
        # Not the session's number: a gRPC client has one session, and several clients may share a connection.
        return self.context.channel.peer.number

    @property
    def messages(self) -> int:
        context = self.context
        return batches.count_messages(context.command.body) if is_batch(self.code, context.fields) else 1

    @property
    def size(self) -> int:
        return self.context.size
