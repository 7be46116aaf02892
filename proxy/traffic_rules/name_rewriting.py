"""Rewriting of names in the requests, replies and pushes of a remoting client.

A table by request code gives the parts of a request and its reply that hold names. Codes that are not in it are
rejected for clients with other names, so that no name passes unchanged by accident.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from proxy.core.channel import Channel
from proxy.core.principal import Principal
from proxy.core.reply_recipients import REPLIES
from proxy.traffic_rules.group_fields import MORE_GROUP_FIELDS
from proxy.traffic_rules.name_mapping import ForeignName, NameMapping, is_shared
from remoting import json_names as json_bodies
from remoting import messages, properties
from remoting.batch_flag import is_batch
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, ConsumerNotOnline, NotPermitted, RemotingError, UnsupportedRequest
from remoting.json_names import NameReplacer
from remoting.messages import StoredMessage
from remoting.outcomes import Reply
from remoting.requests import REQUESTS, Action, Direction
from remoting.signature import SIGNATURE, SIGNATURE_FIELDS

_log = logging.getLogger("gantry.rules")

Handler = Callable[[Channel, RemotingCommand], Reply | None]


class BodyFormat(Enum):
    """Encoding of the names in a body."""

    NONE = auto()  # no names
    JSON = auto()
    BATCH_ACK = auto()  # JSON with the short and long keys of batch acks
    STORED = auto()  # stored messages


class BodyFormats(NamedTuple):
    """Encodings of the names in the bodies of a request and its reply."""

    request: BodyFormat = BodyFormat.NONE
    reply: BodyFormat = BodyFormat.NONE


_C = RequestCode
_NO_NAMES = BodyFormats()
_DELIVERY = BodyFormats(reply=BodyFormat.STORED)
BODY_FORMATS: dict[int, BodyFormats] = {
    _C.SEND_MESSAGE: _NO_NAMES,
    _C.SEND_MESSAGE_V2: _NO_NAMES,
    _C.SEND_BATCH_MESSAGE: _NO_NAMES,
    _C.SEND_REPLY_MESSAGE: _NO_NAMES,
    _C.SEND_REPLY_MESSAGE_V2: _NO_NAMES,
    _C.CONSUMER_SEND_MSG_BACK: _NO_NAMES,
    _C.END_TRANSACTION: _NO_NAMES,
    _C.RECALL_MESSAGE: _NO_NAMES,
    _C.PULL_MESSAGE: _DELIVERY,
    _C.LITE_PULL_MESSAGE: _DELIVERY,
    _C.QUERY_CONSUMER_OFFSET: _NO_NAMES,
    _C.UPDATE_CONSUMER_OFFSET: _NO_NAMES,
    _C.SEARCH_OFFSET_BY_TIMESTAMP: _NO_NAMES,
    _C.GET_MAX_OFFSET: _NO_NAMES,
    _C.GET_MIN_OFFSET: _NO_NAMES,
    _C.GET_EARLIEST_MSG_STORETIME: _NO_NAMES,
    _C.POP_MESSAGE: _DELIVERY,
    _C.POP_LITE_MESSAGE: _DELIVERY,
    _C.PEEK_MESSAGE: _DELIVERY,
    _C.ACK_MESSAGE: _NO_NAMES,
    _C.BATCH_ACK_MESSAGE: BodyFormats(request=BodyFormat.BATCH_ACK),
    _C.CHANGE_MESSAGE_INVISIBLETIME: _NO_NAMES,
    _C.NOTIFICATION: _NO_NAMES,
    _C.POLLING_INFO: _NO_NAMES,
    _C.LITE_SUBSCRIPTION_CTL: BodyFormats(request=BodyFormat.JSON),
    _C.HEART_BEAT: BodyFormats(request=BodyFormat.JSON),
    _C.UNREGISTER_CLIENT: _NO_NAMES,
    _C.CHECK_CLIENT_CONFIG: BodyFormats(request=BodyFormat.JSON),
    _C.GET_CONSUMER_LIST_BY_GROUP: _NO_NAMES,
    _C.GET_CONSUMER_CONNECTION_LIST: BodyFormats(reply=BodyFormat.JSON),
    _C.LOCK_BATCH_MQ: BodyFormats(BodyFormat.JSON, BodyFormat.JSON),
    _C.UNLOCK_BATCH_MQ: BodyFormats(request=BodyFormat.JSON),
    _C.QUERY_ASSIGNMENT: BodyFormats(BodyFormat.JSON, BodyFormat.JSON),
    # The body of a route has no topic.
    _C.GET_ROUTEINFO_BY_TOPIC: _NO_NAMES,
    _C.QUERY_MESSAGE: _DELIVERY,
    _C.VIEW_MESSAGE_BY_ID: _DELIVERY,
    _C.GET_CONSUMER_RUNNING_INFO: BodyFormats(reply=BodyFormat.JSON),
    _C.CONSUME_MESSAGE_DIRECTLY: _NO_NAMES,
}
# Requests to clients, from brokers or from tools through the proxy.
PUSH_BODY_FORMATS: dict[int, BodyFormats] = {
    _C.CHECK_TRANSACTION_STATE: BodyFormats(request=BodyFormat.STORED),
    _C.NOTIFY_CONSUMER_IDS_CHANGED: _NO_NAMES,
    _C.RESET_CONSUMER_CLIENT_OFFSET: BodyFormats(request=BodyFormat.JSON),
    _C.GET_CONSUMER_STATUS_FROM_CLIENT: BodyFormats(reply=BodyFormat.JSON),
    _C.PUSH_REPLY_MESSAGE_TO_CLIENT: _NO_NAMES,
    _C.NOTIFY_UNSUBSCRIBE_LITE: _NO_NAMES,
    _C.GET_CONSUMER_RUNNING_INFO: BodyFormats(reply=BodyFormat.JSON),
    _C.CONSUME_MESSAGE_DIRECTLY: BodyFormats(request=BodyFormat.STORED),
}
# Properties of a message that hold names.
_TOPIC_PROPERTIES = (properties.RETRY_TOPIC, properties.REAL_TOPIC, properties.DLQ_ORIGIN_TOPIC)
_GROUP_PROPERTIES = (properties.PRODUCER_GROUP, properties.ORIGIN_GROUP)
_NAME_PROPERTIES = (*_TOPIC_PROPERTIES, *_GROUP_PROPERTIES)
# Properties that act on messages of other topics: further queues, and the id of a delayed message to be removed.
_FOREIGN_PROPERTIES = (properties.INNER_MULTI_DISPATCH, properties.TIMER_DEL_UNIQKEY)
_FOREIGN_PROPERTIES_IN_BATCHES = tuple(name.encode() for name in _FOREIGN_PROPERTIES)


class NameRewriting:
    """Rewrites the names of one connection, in both directions."""

    def __init__(self, names: NameMapping) -> None:
        self.names = names

    def names_of(self, _: Principal) -> NameMapping:
        """Return the name mapping of a request's sender."""
        return self.names

    def serve(self, handle: Handler, channel: Channel, command: RemotingCommand) -> Reply | None:
        """Serve a client's request under the brokers' names. Raises RemotingError."""
        try:
            group = self._rewrite_request(channel, command)
        except RemotingError:
            raise
        except Exception:
            _log.exception("cannot rewrite the names in request %d from %s", command.code, channel.peer.address)
            raise RemotingError("internal error") from None
        try:
            reply = handle(channel, command)
        except Exception as error:
            self._rewrite_error(error)
            raise
        if reply is not None:
            # Runs before the connection's own callback, added later, writes the reply.
            if command.code == _C.VIEW_MESSAGE_BY_ID:
                reply.add_done_callback(partial(self._rewrite_viewed, command.fields.get("offset", "")))
            else:
                formats = BODY_FORMATS.get(command.code, _NO_NAMES)
                reply.add_done_callback(partial(self._rewrite_reply, formats.reply, group))
        return reply

    # Client to broker.

    def _rewrite_request(self, channel: Channel, command: RemotingCommand) -> str | None:
        """Replace the names in a request by the brokers' and return its group, by the brokers' name."""
        spec = REQUESTS.get(command.code)
        if spec is None:
            # Tools send further codes, with names that cannot be rewritten.
            raise UnsupportedRequest(
                f"request {command.code} is not supported for clients with a namespace or topic aliases"
            )
        if spec.direction is Direction.BROKER:
            # The core rejects it.
            return None
        formats = BODY_FORMATS.get(command.code)
        if formats is None:
            raise UnsupportedRequest(f"{spec.name} is not supported for clients with a namespace or topic aliases")
        fields, names = command.fields, self.names
        if fields.get(SIGNATURE):
            if channel.principal.failure is not None:
                raise NotPermitted("names in signed requests can be rewritten only if Gantry authenticates the clients")
            # It would not be valid any more; Gantry vouches for the client towards brokers.
            for name in SIGNATURE_FIELDS:
                fields.pop(name, None)
        group = fields.get(spec.group) if spec.group is not None else None
        for name in filter(None, (spec.group, *MORE_GROUP_FIELDS.get(command.code, ()))):
            if name in fields:
                fields[name] = names.broker_group(fields[name])
        topic = fields.get(spec.topic) if spec.topic is not None else None
        if spec.topic is not None and topic is not None:
            if names.namespace and is_shared(topic) and not _may_use_shared(spec.action, command.code):
                raise NotPermitted(f"topic {topic} is shared: messages may only be sent to it")
            fields[spec.topic] = names.broker_topic(topic, group)
        if spec.send is not None:
            if command.code in REPLIES and not fields.get(spec.send.producer_group, "").startswith(names.prefix):
                # Brokers push a reply to any client that it names. Those of other namespaces refuse the sender's group.
                raise NotPermitted(f"a client in a namespace cannot reply as the shared group {group!r}")
            self._rewrite_properties(command, spec.send.properties)
        if formats.request is not BodyFormat.NONE and command.body:
            replacer = _replacer(formats.request, names.broker_topic, names.broker_group, client_request=True)
            command.body = json_bodies.replace_names(command.body, replacer, client_request=True)
        return fields.get(spec.group) if spec.group is not None else None

    def _rewrite_properties(self, command: RemotingCommand, field: str) -> None:
        text = command.fields.get(field, "")
        if self.names.namespace:
            _check_properties(command, text)
        if any(name in text for name in _NAME_PROPERTIES):
            command.fields[field] = _replace_in_properties(text, self.names.broker_topic, self.names.broker_group)

    # Broker to client.

    def _rewrite_reply(self, body_format: BodyFormat, group: str | None, reply: Reply) -> None:
        """Replace the names in a reply by the client's: done callback of the reply."""
        if reply.cancelled():
            return
        error = reply.exception()
        if error is not None:
            self._rewrite_error(error)
            return
        answer = reply.result()
        try:
            if answer.code == ResponseCode.SUCCESS and answer.body:
                answer.body = self._rewrite_body(body_format, answer.body, group)
        except Exception as failure:
            # Names of another namespace, or an unreadable body: the client gets no part of it.
            expected = isinstance(failure, ForeignName | BodyError)
            level = logging.INFO if expected else logging.ERROR
            _log.log(
                level,
                "replaced a reply by NO_PERMISSION because its names cannot be mapped for the client: %s",
                type(failure).__name__,
                exc_info=None if expected else failure,
            )
            answer.code = answer.header["code"] = int(ResponseCode.NO_PERMISSION)
            answer.body = b""
            answer.header["remark"] = "the reply contains names outside the client's namespace"
            return
        remark = answer.remark
        if remark:
            answer.header["remark"] = self.names.client_text(remark)

    def _rewrite_viewed(self, offset: str, reply: Reply) -> None:
        """Replace the names in a viewed message: done callback of the reply.

        A message that the client must not see is answered as none: otherwise the client would learn its offset.
        """
        self._rewrite_reply(BodyFormat.STORED, None, reply)
        if reply.cancelled() or reply.exception() is not None:
            return
        answer = reply.result()
        if answer.code == ResponseCode.NO_PERMISSION and self.names.namespace:
            answer.code = answer.header["code"] = int(ResponseCode.SYSTEM_ERROR)
            answer.header["remark"] = f"can not find message by the offset, {as_number(offset)}"
            answer.fields.clear()

    def _rewrite_error(self, error: BaseException) -> None:
        error.args = tuple(self.names.client_text(arg) if isinstance(arg, str) else arg for arg in error.args)

    def _rewrite_body(self, body_format: BodyFormat, body: bytes, group: str | None) -> bytes:
        """Return a body with the client's names. Raises ForeignName, BodyError."""
        names = self.names
        if body_format is BodyFormat.NONE:
            return body
        if body_format is BodyFormat.STORED:
            return b"".join(
                messages.encode_message(_rewrite_message(names, message, group))
                for message in messages.decode_messages(body)
            )
        return json_bodies.replace_names(body, _replacer(body_format, names.client_topic, names.client_group))

    # Pushes.

    def rewrite_push(self, command: RemotingCommand) -> RemotingCommand:
        """Return a request to the client with the client's names.

        Raises UnsupportedRequest if the code is not in the table, ConsumerNotOnline if a name has no counterpart.
        """
        spec, formats = REQUESTS.get(command.code), PUSH_BODY_FORMATS.get(command.code)
        if spec is None or formats is None:
            raise UnsupportedRequest(
                f"request {command.code} is not supported for clients with a namespace or topic aliases"
            )
        fields, names = dict(command.fields), self.names
        group = fields.get(spec.group) if spec.group is not None else None
        try:
            if spec.topic is not None and spec.topic in fields:
                fields[spec.topic] = names.client_topic(fields[spec.topic], group)
            if spec.group is not None and group is not None:
                fields[spec.group] = names.client_group(group)
            body = self._rewrite_body(formats.request, command.body, group) if command.body else b""
        except ForeignName:
            raise ConsumerNotOnline("the request names topics or groups outside the client's namespace") from None
        header = {**command.header, "extFields": fields}
        return RemotingCommand(header, fields, body, command.serialize_type, command.opaque, command.code, command.flag)

    def rewrite_push_reply(self, code: int, reply: Reply) -> None:
        """Replace the names in the client's reply to a push by the brokers': done callback of the reply."""
        if reply.cancelled() or reply.exception() is not None:
            return
        answer = reply.result()
        body_format = PUSH_BODY_FORMATS[code].reply
        if body_format is not BodyFormat.NONE and answer.body:
            try:
                replacer = _replacer(body_format, self.names.broker_topic, self.names.broker_group)
                answer.body = json_bodies.replace_names(answer.body, replacer)
            except (NotPermitted, BodyError) as error:
                _log.info("cannot rewrite the names in a client's reply to request %d: %s", code, error)
                answer.code = answer.header["code"] = int(ResponseCode.SYSTEM_ERROR)
                answer.body = b""


def _check_properties(command: RemotingCommand, text: str) -> None:
    """Reject messages with properties that act on messages of other topics. Raises NotPermitted."""
    batch = is_batch(command.code, command.fields)
    for name, bytes_in_batch in zip(_FOREIGN_PROPERTIES, _FOREIGN_PROPERTIES_IN_BATCHES, strict=True):
        if name in text or (batch and bytes_in_batch in command.body):
            raise NotPermitted(f"messages with the property {name} cannot be sent from a namespace")


def as_number(text: str) -> str:
    """Return a number as brokers write it."""
    try:
        return str(int(text))
    except ValueError:
        return text


def _may_use_shared(action: Action, code: int) -> bool:
    return action is Action.PUB or code == RequestCode.GET_ROUTEINFO_BY_TOPIC


def _replacer(
    body_format: BodyFormat, topic: Callable[[str], str], group: Callable[[str], str], *, client_request: bool = False
) -> NameReplacer:
    if body_format is BodyFormat.BATCH_ACK:
        keys = json_bodies.BATCH_ACK_TOPICS, json_bodies.BATCH_ACK_GROUPS
    else:
        keys = json_bodies.TOPICS, json_bodies.GROUPS
    return NameReplacer(topic, group, *keys, client_request=client_request)


def _rewrite_message(names: NameMapping, message: StoredMessage, group: str | None) -> StoredMessage:
    if names.namespace and is_shared(message.topic):
        # Otherwise messages of other tenants could be looked up by their ids.
        raise ForeignName(message.topic)
    text = message.properties
    if any(name in text for name in _NAME_PROPERTIES):
        text = _replace_in_properties(text, _or_empty(names.client_topic), _or_empty(names.client_group))
    return replace(message, topic=names.client_topic(message.topic, group), properties=text)


def _or_empty(rename: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that maps names without a counterpart to "".

    A property may hold an internal name of the broker, such as that of the schedule topic: the property is left out,
    the message is delivered.
    """

    def rename_or_empty(name: str) -> str:
        try:
            return rename(name)
        except ForeignName:
            return ""

    return rename_or_empty


def _replace_in_properties(text: str, topic: Callable[[str], str], group: Callable[[str], str]) -> str:
    """Return a property string with its topics and groups replaced."""
    pairs = properties.decode(text)
    for keys, rename in ((_TOPIC_PROPERTIES, topic), (_GROUP_PROPERTIES, group)):
        for key in keys:
            if key in pairs:
                pairs[key] = rename(pairs[key])
    return properties.encode(pairs)
