"""Subjects: requests and connections of this replica, as rules look at them."""

from collections.abc import Hashable

from protocol_negotiation.peer import Peer
from proxy.core.channel import ChannelProtocol
from proxy.core.context import Context
from proxy.traffic_rules import batches, json_bodies
from remoting.codes import RequestCode, version_text

# These name topics and groups in their bodies, batch acks by short names.
_IN_BODIES = {
    RequestCode.LOCK_BATCH_MQ: False,
    RequestCode.UNLOCK_BATCH_MQ: False,
    RequestCode.QUERY_ASSIGNMENT: False,
    RequestCode.CHECK_CLIENT_CONFIG: False,
    RequestCode.LITE_SUBSCRIPTION_CTL: False,
    RequestCode.HEART_BEAT: False,
    RequestCode.BATCH_ACK_MESSAGE: True,
}


class ConnectionAttributes:
    """A connection that opens. Nobody has said anything over it yet."""

    __slots__ = ("peer", "protocol")

    code = -1
    client_id: str | None = None
    language: str | None = None
    version: str | None = None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    messages = 0
    size = 0

    def __init__(self, peer: Peer, protocol: ChannelProtocol) -> None:
        self.peer = peer
        self.protocol = protocol

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
    """A request under way. What costs more than a look is looked at when a rule asks."""

    __slots__ = ("_named", "code", "context")

    def __init__(self, context: Context) -> None:
        self.context = context
        self.code = context.code
        self._named: tuple[tuple[str, ...], tuple[str, ...]] | None = None

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
        known = channel.session.client_id
        # A remoting client's identity is what its session has.
        return known if known or channel.protocol == "remoting" else channel.identity.client_id

    @property
    def language(self) -> str | None:
        context = self.context
        # A remoting client says it with every request, before its first heartbeat too.
        return context.command.language if self.protocol == "remoting" else context.channel.identity.language

    @property
    def version(self) -> str | None:
        context = self.context
        if self.protocol == "remoting":
            return version_text(context.command.version)
        return context.channel.identity.version

    @property
    def topics(self) -> tuple[str, ...]:
        if self.code in _IN_BODIES:
            return self._names()[0]
        topic = self.context.topic
        return () if topic is None else (topic,)

    @property
    def groups(self) -> tuple[str, ...]:
        if self.code in _IN_BODIES:
            return self._names()[1]
        group = self.context.group
        return () if group is None else (group,)

    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Raises BodyError: what we cannot read a broker perhaps can, and who is not to be named gets by."""
        if self._named is None:
            self._named = json_bodies.names(self.context.command.body, _IN_BODIES[RequestCode(self.code)])
        return self._named

    @property
    def connection(self) -> Hashable:
        return self.context.channel.session.number

    @property
    def messages(self) -> int:
        context = self.context
        return batches.count(context.command.body) if batches.is_batch(self.code, context.fields) else 1

    @property
    def size(self) -> int:
        return self.context.size
