"""Checks of sends: they reject messages that harm others once a broker has stored them."""

from typing import Final

from proxy.core.context import Context
from remoting import messages, properties
from remoting.batch_flag import is_batch, may_be_batch
from remoting.compression import CompressionType
from remoting.errors import InvalidRequest
from remoting.messages import TRANSACTION_MASK, SysFlag
from remoting.names import LITE_SEPARATOR, LMQ_PREFIX, parent_topic
from remoting.properties import MessageType


def records(context: Context) -> None:
    """Reject messages of which a broker would store another record than it means to.

    A broker writes the sys flag as it is. With a bit for IPv6 hosts and hosts of IPv4, it reads the record's topic and
    properties from the body later, and ends its log there at a restart (MessageExtEncoder.encodeWithoutProperties,
    CommitLog.checkMessageAndReturnSize). The bits of an inner batch let it skip queue offsets, and clients stop at an
    unknown compression type. Raises InvalidRequest, and BodyError for a batch that cannot be read.
    """
    spec = context.spec
    if spec is None or spec.send is None:
        return
    flag = context.fields.get(spec.send.sys_flag, "0")
    if flag not in _SYS_FLAGS:
        raise InvalidRequest(f"the sys flag {flag[:_MAX_SHOWN]!r} is not one of a client")
    if is_batch(context.code, context.fields):
        messages.check_batch(context.command.body)


def half_messages(context: Context) -> None:
    """Reject a half message with the broker's property for the place of another one.

    Brokers write the place into a copy of a half message that they check later. When such a copy comes before the
    message at that place, a broker forgets that this one was ended, asks its producer again and so commits it twice,
    whoever has sent it (TransactionalMessageServiceImpl.checkPrepareQueueOffset). Raises InvalidRequest.
    """
    spec = context.spec
    if spec is None or spec.send is None:
        return
    text = context.fields.get(spec.send.properties, "")
    if (
        properties.TRANSACTION_PREPARED_QUEUE_OFFSET in text
        and properties.get(text, properties.TRANSACTION_PREPARED_QUEUE_OFFSET) is not None
        and properties.message_type(text) is MessageType.TRANSACTION
    ):
        raise InvalidRequest(
            f"a half message of a client has no property {properties.TRANSACTION_PREPARED_QUEUE_OFFSET}"
        )


def lite_queues(context: Context) -> None:
    """Reject a message for the queue of a lite topic with a name that brokers cannot parse.

    Brokers of RocketMQ 5.5 fail again and again at such a message, and give consumers no later message of any topic
    (LiteEventDispatcher.doDispatch; the parts of the name are divided by `$`). Raises InvalidRequest, and BodyError for
    a batch that cannot be read.
    """
    spec = context.spec
    if spec is None or spec.send is None:
        return
    names, fields, body = spec.send, context.fields, context.command.body
    _check_lite_queues(fields.get(names.properties, ""))
    if may_be_batch(context.code, fields) and any(name in body for name in _LITE_NAMES):
        for message in messages.iterate_batch(body):
            _check_lite_queues(message.properties)


def _check_lite_queues(text: str) -> None:
    if properties.LITE_TOPIC in text and LITE_SEPARATOR in (properties.get(text, properties.LITE_TOPIC) or ""):
        raise InvalidRequest(f"the name of a lite topic has the character {LITE_SEPARATOR}")
    if properties.INNER_MULTI_DISPATCH not in text:
        return
    for queue in (properties.get(text, properties.INNER_MULTI_DISPATCH) or "").split(","):
        if queue.startswith(LMQ_PREFIX + LITE_SEPARATOR) and (
            parent_topic(queue) is None or queue.count(LITE_SEPARATOR) > _LITE_SEPARATORS
        ):
            raise InvalidRequest(f"{queue[:_MAX_SHOWN]} is not the queue of a lite topic")


# The sys flags of clients as they write them.
_SYS_FLAGS: Final = frozenset(
    str(bits | compression << 8)
    for bits in range(int(SysFlag.COMPRESSED | SysFlag.MULTI_TAGS | TRANSACTION_MASK) + 1)
    for compression in (0, *CompressionType)
)
_LITE_NAMES: Final = (properties.LITE_TOPIC.encode(), properties.INNER_MULTI_DISPATCH.encode())
_LITE_SEPARATORS: Final = 2
# Characters of a name or a value in an error.
_MAX_SHOWN: Final = 100
