"""Changes to requests that a broker would otherwise misread behind a proxy, and the limit on batches."""

import contextlib
from collections.abc import Callable
from itertools import islice
from typing import Final

from proxy.core.context import Context
from proxy.core.messaging import Messaging
from remoting import messages, properties
from remoting.batch_flag import is_batch, may_be_batch
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, InvalidRequest
from remoting.names import RETRY_PREFIX
from remoting.requests import SEND_FIELD_NAMES

# Maximum number of messages in a batch. The response's header has their ids, and the embedded broker stores them in one
# turn of the event loop, for which others wait.
_MAX_BATCH = 16_384
# Bytes of a batch that cannot have more messages: each takes at least 22 bytes.
_SMALL_BATCH: Final = 22 * _MAX_BATCH


def _use_broker_clock(core: Messaging, context: Context) -> None:
    """Set bornTime to 0: a broker that compares it with its own clock would end the poll early."""
    if core.signing.may_change(context):
        context.fields["bornTime"] = "0"


def _adapt_send(core: Messaging, context: Context) -> None:
    """Limit a batch, and store the producer's address in a property: the broker only sees ours.

    Signed requests stay unchanged, but must not contain another address. gRPC clients set the property by the API.
    Brokers take the messages from the body by a flag of every send, not by the request code (SendMessageProcessor).
    Raises InvalidRequest, BodyError.
    """
    names = SEND_FIELD_NAMES[context.code]
    if context.code == _SEND_BATCH or may_be_batch(context.code, context.fields):
        _check_batch(core, context)
    if not core.settings.born_host:
        return
    name = names.properties
    text = context.fields.get(name, "")
    address = context.channel.session.address
    if properties.BORN_HOST in text:
        if _may_name_born_host(context, properties.get(text, properties.BORN_HOST)):
            return
        if not core.signing.may_change(context):
            raise _forged_born_host(context)
        text = context.fields[name] = properties.without(text, properties.BORN_HOST)
    # In a batch, each message has its own properties.
    if properties.is_extendable(text) and context.code != _SEND_BATCH and core.signing.may_change(context):
        context.fields[name] = properties.append(text, properties.BORN_HOST, address)


def _check_batch(core: Messaging, context: Context) -> None:
    """Reject a batch of too many messages, or with another address than the producer's. Raises InvalidRequest."""
    command = context.command
    if is_batch(context.code, context.fields):
        _check_batch_size(command)
    if not core.settings.born_host or _BORN_HOST not in command.body:
        return
    for message in messages.iterate_batch(command.body):
        if not _may_name_born_host(context, properties.get(message.properties, properties.BORN_HOST)):
            raise _forged_born_host(context)


def _check_batch_size(command: RemotingCommand) -> None:
    """Raise InvalidRequest if a batch has more messages than ids fit into the header of a response."""
    if len(command.body) <= _SMALL_BATCH:
        return
    # The server of the batch rejects a malformed one.
    with contextlib.suppress(BodyError):
        if sum(1 for _ in islice(messages.iterate_batch(command.body), _MAX_BATCH + 1)) > _MAX_BATCH:
            raise InvalidRequest(f"a batch has more than {_MAX_BATCH} messages")


def _may_name_born_host(context: Context, host: str | None) -> bool:
    """Return whether a message may have this address of its producer.

    A message that a consumer sends back for a retry has the address of its first producer.
    """
    return (
        host is None
        or host == context.channel.session.address
        or not context.channel.signs
        or (context.topic or "").startswith(RETRY_PREFIX)
    )


def _forged_born_host(context: Context) -> InvalidRequest:
    return InvalidRequest(
        f"the property {properties.BORN_HOST} is not the client's address {context.channel.session.address}"
    )


_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_BORN_HOST: Final = properties.BORN_HOST.encode()

# By request code.
ADAPTATIONS: Final[dict[int, Callable[[Messaging, Context], None]]] = {
    RequestCode.POP_MESSAGE: _use_broker_clock,
    RequestCode.POP_LITE_MESSAGE: _use_broker_clock,
    RequestCode.NOTIFICATION: _use_broker_clock,
    RequestCode.SEND_MESSAGE: _adapt_send,
    RequestCode.SEND_MESSAGE_V2: _adapt_send,
    RequestCode.SEND_BATCH_MESSAGE: _adapt_send,
}
