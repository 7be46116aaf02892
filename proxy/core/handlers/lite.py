"""POP_LITE_MESSAGE and LITE_SUBSCRIPTION_CTL: the lite topics of RocketMQ 5.5 (RIP-83).

Brokers choose the messages of a pop by the client id alone, not by its group or topic, and change the subscriptions of
any client id (PopLiteMessageProcessor, LiteSubscriptionCtlProcessor). Where clients are to be separated, by users or
namespaces, a remoting client may only name its own id, and brokers get another id for each user and group, if Gantry
may change the request.
"""

from collections.abc import Awaitable
from functools import partial
from hashlib import sha256
from typing import Final

from proxy.core.channel import Channel
from proxy.core.context import Context
from proxy.core.forwarding import forward
from proxy.core.handlers import pop
from proxy.core.messaging import Messaging
from proxy.core.principal import OWN
from proxy.settings.model import Settings
from remoting.command import RemotingCommand
from remoting.errors import InvalidRequest, NotPermitted
from remoting.json_names import NameReplacer, collect_names, replace_names
from remoting.outcomes import Reply

# Beginning of the ids at brokers, which no client may choose, and characters of the digest of user and group in them.
_PREFIX: Final = "gantry:"
_DIGEST_LENGTH: Final = 24
# The name of a group in a namespace has that before this character.
_NAMESPACE_SEPARATOR: Final = "%"
_CLIENT_ID: Final = frozenset({"clientId"})


def pop_lite(core: Messaging, context: Context) -> Reply | None:
    """Forward a pop with the client's id at the brokers. Raises NotPermitted for the id of another client."""
    fields = context.fields
    fields["clientId"] = _checked_id(core, context, fields["clientId"], fields["consumerGroup"])
    return pop.pop_message(core, context)


def subscribe(core: Messaging, context: Context) -> Awaitable[RemotingCommand] | None:
    """Forward subscriptions with the client's id at the brokers.

    Raises NotPermitted for the id of another client, InvalidRequest for several groups, BodyError.
    """
    command = context.command
    if command.body and _may_separate(core.settings, context):
        _, groups = collect_names(command.body)
        if len(groups) > 1:
            raise InvalidRequest("the subscriptions are of several groups")
        group = groups[0] if groups else ""
        rename = partial(_checked_id, core, context, group=group)
        replacer = NameReplacer(rename, str, _CLIENT_ID, frozenset(), client_request=True)
        body = replace_names(command.body, replacer, client_request=True)
        if core.signing.may_change(context):
            command.body = body
    return forward(core, context)


def id_at_brokers(user: str, group: str, client_id: str) -> str:
    """Return the client id that brokers get: the same at all replicas, and another one for each user and group."""
    digest = sha256(f"{user}\0{group}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_PREFIX}{digest[:_DIGEST_LENGTH]}:{client_id}"


def _may_separate(settings: Settings, context: Context) -> bool:
    # The embedded broker has no lite topics.
    separates = settings.auth.enabled or settings.rules.file is not None
    return separates and not settings.has_embedded_broker and context.principal is not OWN


def _checked_id(core: Messaging, context: Context, client_id: str, group: str) -> str:
    """Return the id that brokers get for a client's. Raises NotPermitted for the id of another client.

    A remoting client has to be a member of the group with this id. The ids of gRPC clients are their own.
    """
    if not _may_separate(core.settings, context):
        return client_id
    remoting = context.channel.protocol == "remoting"
    # Outside namespaces and without authentication, all clients may do everything.
    separated = core.settings.auth.enabled or _NAMESPACE_SEPARATOR in group
    forged = client_id.startswith(_PREFIX) and (remoting or not separated)
    if forged or (remoting and separated and not _is_member(core, context.channel, client_id, group)):
        raise NotPermitted(f"the client id {client_id} is not that of this connection in the group {group}")
    if separated and core.signing.may_change(context):
        return id_at_brokers(context.principal.user, group, client_id)
    return client_id


def _is_member(core: Messaging, channel: Channel, client_id: str, group: str) -> bool:
    member = core.registry.member(channel)
    return member is not None and member.client_id == client_id and group in member.consumers


def restore_id(command: RemotingCommand) -> str | None:
    """Give a broker's request the id that the client knows, and return it."""
    client_id = command.fields.get("clientId")
    if client_id is not None and client_id.startswith(_PREFIX):
        client_id = command.fields["clientId"] = client_id[len(_PREFIX) + _DIGEST_LENGTH + 1 :]
    return client_id
