"""Renaming: the requests of a remoting client in the brokers' names, and what it is told in its own.

Which parts of a request and its answer hold names is a table by request code. A code that is not in it is refused to
clients that have names of their own, so that nothing passes by accident.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from proxy.core.channel import Channel
from proxy.core.messaging import Reply
from proxy.traffic_rules import json_bodies
from proxy.traffic_rules.batches import is_batch
from proxy.traffic_rules.json_bodies import Walk
from proxy.traffic_rules.name_mapping import Foreign, Names, is_shared
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, ConsumerNotOnline, NotPermitted, RemotingError, UnsupportedRequest
from remoting.messages import StoredMessage
from remoting.requests import REQUESTS, Action, Direction

_log = logging.getLogger("gantry.rules")

Handler = Callable[[Channel, RemotingCommand], Reply | None]


class Form(Enum):
    """How a body holds names."""

    NONE = auto()  # not at all
    JSON = auto()
    SHORT = auto()  # JSON with the short names of batch acks
    STORED = auto()  # stored messages


class Forms(NamedTuple):
    """The bodies of a request and of its answer."""

    request: Form = Form.NONE
    answer: Form = Form.NONE


_C = RequestCode
_PLAIN = Forms()
_READ = Forms(answer=Form.STORED)
FORMS: dict[int, Forms] = {
    _C.SEND_MESSAGE: _PLAIN,
    _C.SEND_MESSAGE_V2: _PLAIN,
    _C.SEND_BATCH_MESSAGE: _PLAIN,
    _C.SEND_REPLY_MESSAGE: _PLAIN,
    _C.SEND_REPLY_MESSAGE_V2: _PLAIN,
    _C.CONSUMER_SEND_MSG_BACK: _PLAIN,
    _C.END_TRANSACTION: _PLAIN,
    _C.RECALL_MESSAGE: _PLAIN,
    _C.PULL_MESSAGE: _READ,
    _C.LITE_PULL_MESSAGE: _READ,
    _C.QUERY_CONSUMER_OFFSET: _PLAIN,
    _C.UPDATE_CONSUMER_OFFSET: _PLAIN,
    _C.SEARCH_OFFSET_BY_TIMESTAMP: _PLAIN,
    _C.GET_MAX_OFFSET: _PLAIN,
    _C.GET_MIN_OFFSET: _PLAIN,
    _C.GET_EARLIEST_MSG_STORETIME: _PLAIN,
    _C.POP_MESSAGE: _READ,
    _C.POP_LITE_MESSAGE: _READ,
    _C.PEEK_MESSAGE: _READ,
    _C.ACK_MESSAGE: _PLAIN,
    _C.BATCH_ACK_MESSAGE: Forms(request=Form.SHORT),
    _C.CHANGE_MESSAGE_INVISIBLETIME: _PLAIN,
    _C.NOTIFICATION: _PLAIN,
    _C.POLLING_INFO: _PLAIN,
    _C.LITE_SUBSCRIPTION_CTL: Forms(request=Form.JSON),
    _C.HEART_BEAT: Forms(request=Form.JSON),
    _C.UNREGISTER_CLIENT: _PLAIN,
    _C.CHECK_CLIENT_CONFIG: Forms(request=Form.JSON),
    _C.GET_CONSUMER_LIST_BY_GROUP: _PLAIN,
    _C.GET_CONSUMER_CONNECTION_LIST: Forms(answer=Form.JSON),
    _C.LOCK_BATCH_MQ: Forms(Form.JSON, Form.JSON),
    _C.UNLOCK_BATCH_MQ: Forms(request=Form.JSON),
    _C.QUERY_ASSIGNMENT: Forms(Form.JSON, Form.JSON),
    # A route names no topic.
    _C.GET_ROUTEINFO_BY_TOPIC: _PLAIN,
    _C.QUERY_MESSAGE: _READ,
    _C.VIEW_MESSAGE_BY_ID: _READ,
    _C.GET_CONSUMER_RUNNING_INFO: Forms(answer=Form.JSON),
    _C.CONSUME_MESSAGE_DIRECTLY: _PLAIN,
}
# What brokers, and tools through us, ask of clients.
PUSHES: dict[int, Forms] = {
    _C.CHECK_TRANSACTION_STATE: Forms(request=Form.STORED),
    _C.NOTIFY_CONSUMER_IDS_CHANGED: _PLAIN,
    _C.RESET_CONSUMER_CLIENT_OFFSET: Forms(request=Form.JSON),
    _C.GET_CONSUMER_STATUS_FROM_CLIENT: Forms(answer=Form.JSON),
    _C.PUSH_REPLY_MESSAGE_TO_CLIENT: _PLAIN,
    _C.NOTIFY_UNSUBSCRIBE_LITE: _PLAIN,
    _C.GET_CONSUMER_RUNNING_INFO: Forms(answer=Form.JSON),
    _C.CONSUME_MESSAGE_DIRECTLY: Forms(request=Form.STORED),
}
# Ext fields with a name besides those that the request table knows.
_MORE_GROUPS: dict[int, tuple[str, ...]] = {_C.UNREGISTER_CLIENT: ("producerGroup", "consumerGroup")}
# Properties of a message that hold names.
_TOPIC_PROPERTIES = (properties.RETRY_TOPIC, properties.REAL_TOPIC, properties.DLQ_ORIGIN_TOPIC)
_GROUP_PROPERTIES = (properties.PRODUCER_GROUP, properties.ORIGIN_GROUP)
_NAMED = (*_TOPIC_PROPERTIES, *_GROUP_PROPERTIES)
_MULTI_DISPATCH = properties.INNER_MULTI_DISPATCH.encode()


class NameRewriting:
    """The two directions of one connection."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def serve(self, handle: Handler, channel: Channel, command: RemotingCommand) -> Reply | None:
        """Serve a client's request under the brokers' names. Raises RemotingError."""
        try:
            group = self._translate(command)
        except RemotingError:
            raise
        except Exception:
            _log.exception("request %d of %s could not be translated", command.code, channel.peer.address)
            raise RemotingError("internal error") from None
        try:
            reply = handle(channel, command)
        except Exception as error:
            self._show_error(error)
            raise
        if reply is not None:
            # Before the connection's own callback, which comes later, writes the answer.
            reply.add_done_callback(partial(self._show, FORMS.get(command.code, _PLAIN).answer, group))
        return reply

    # From the client.

    def _translate(self, command: RemotingCommand) -> str | None:
        """Put the brokers' names into a request; its group, by the brokers' name."""
        spec = REQUESTS.get(command.code)
        if spec is None or spec.direction is Direction.BROKER:
            # Refused by the core.
            return None
        forms = FORMS.get(command.code)
        if forms is None:
            raise UnsupportedRequest(f"{spec.name} is not served to clients whose topics have names of their own")
        fields, names = command.fields, self.names
        if "Signature" in fields:
            raise NotPermitted("the names in a signed request cannot be changed: send without ACL credentials here")
        group = fields.get(spec.group) if spec.group is not None else None
        for name in filter(None, (spec.group, *_MORE_GROUPS.get(command.code, ()))):
            if name in fields:
                fields[name] = names.group(fields[name])
        topic = fields.get(spec.topic) if spec.topic is not None else None
        if spec.topic is not None and topic is not None:
            if names.namespace and is_shared(topic) and not _may_share(spec.action, command.code):
                raise NotPermitted(f"topic {topic} is everybody's; it can be sent to, and nothing else")
            fields[spec.topic] = names.topic(topic, group)
        if spec.send is not None:
            self._translate_properties(command, spec.send.properties)
        if forms.request is not Form.NONE and command.body:
            command.body = json_bodies.renamed(command.body, _walk(forms.request, names.topic, names.group))
        return fields.get(spec.group) if spec.group is not None else None

    def _translate_properties(self, command: RemotingCommand, holder: str) -> None:
        text = command.fields.get(holder, "")
        if self.names.namespace and (
            properties.INNER_MULTI_DISPATCH in text
            or (is_batch(command.code, command.fields) and _MULTI_DISPATCH in command.body)
        ):
            raise NotPermitted("a message that names further queues cannot be sent from within a namespace")
        if any(name in text for name in _NAMED):
            command.fields[holder] = _renamed(text, self.names.topic, self.names.group)

    # To the client.

    def _show(self, form: Form, group: str | None, reply: Reply) -> None:
        """Put the client's names into an answer that has just come."""
        if reply.cancelled():
            return
        error = reply.exception()
        if error is not None:
            self._show_error(error)
            return
        answer = reply.result()
        try:
            if answer.code == ResponseCode.SUCCESS and answer.body:
                answer.body = self._shown(form, answer.body, group)
        except Exception as trouble:
            # Somebody else's, or nothing that we could read: no part of it is shown.
            expected = isinstance(trouble, Foreign | BodyError)
            level = logging.INFO if expected else logging.ERROR
            _log.log(
                level,
                "an answer was held back from a client with names of its own: %s",
                type(trouble).__name__,
                exc_info=None if expected else trouble,
            )
            answer.code = answer.header["code"] = int(ResponseCode.NO_PERMISSION)
            answer.body = b""
            answer.header["remark"] = "the answer is not of this namespace"
            return
        remark = answer.remark
        if remark:
            answer.header["remark"] = self.names.shown_text(remark)

    def _show_error(self, error: BaseException) -> None:
        error.args = tuple(self.names.shown_text(arg) if isinstance(arg, str) else arg for arg in error.args)

    def _shown(self, form: Form, body: bytes, group: str | None) -> bytes:
        names = self.names
        if form is Form.NONE:
            return body
        if form is Form.STORED:
            return b"".join(
                messages.encode_message(_shown_message(names, message, group))
                for message in messages.decode_messages(body)
            )
        return json_bodies.renamed(body, _walk(form, names.shown_topic, names.shown_group))

    # What the client is asked.

    def asked(self, command: RemotingCommand) -> RemotingCommand:
        """A broker's request for the client, in the client's names. Raises RemotingError."""
        spec, forms = REQUESTS.get(command.code), PUSHES.get(command.code)
        if spec is None or forms is None:
            raise UnsupportedRequest(f"request {command.code} is not for clients whose topics have names of their own")
        fields, names = dict(command.fields), self.names
        group = fields.get(spec.group) if spec.group is not None else None
        try:
            if spec.topic is not None and spec.topic in fields:
                fields[spec.topic] = names.shown_topic(fields[spec.topic], group)
            if spec.group is not None and group is not None:
                fields[spec.group] = names.shown_group(group)
            body = self._shown(forms.request, command.body, group) if command.body else b""
        except Foreign:
            raise ConsumerNotOnline("the client's names are others") from None
        header = {**command.header, "extFields": fields}
        return RemotingCommand(header, fields, body, command.serialize_type, command.code, command.flag)

    def answered(self, code: int, reply: Reply) -> None:
        """The client has answered a request of this code: done callback of the reply."""
        if reply.cancelled() or reply.exception() is not None:
            return
        answer = reply.result()
        form = PUSHES[code].answer
        if form is not Form.NONE and answer.body:
            try:
                answer.body = json_bodies.renamed(answer.body, _walk(form, self.names.topic, self.names.group))
            except (NotPermitted, BodyError) as error:
                _log.info("a client's answer was not understood: %s", error)
                answer.code = answer.header["code"] = int(ResponseCode.SYSTEM_ERROR)
                answer.body = b""


def _may_share(action: Action, code: int) -> bool:
    return action is Action.PUB or code == RequestCode.GET_ROUTEINFO_BY_TOPIC


def _walk(form: Form, topic: Callable[[str], str], group: Callable[[str], str]) -> Walk:
    if form is Form.SHORT:
        return Walk(topic, group, json_bodies.SHORT_TOPICS, json_bodies.SHORT_GROUPS)
    return Walk(topic, group)


def _shown_message(names: Names, message: StoredMessage, group: str | None) -> StoredMessage:
    if names.namespace and is_shared(message.topic):
        # By its id, anybody's could be looked up.
        raise Foreign(message.topic)
    text = message.properties
    if any(name in text for name in _NAMED):
        text = _renamed(text, _or_nothing(names.shown_topic), _or_nothing(names.shown_group))
    return replace(message, topic=names.shown_topic(message.topic, group), properties=text)


def _or_nothing(shown: Callable[[str], str]) -> Callable[[str], str]:
    """A name in a property may be of the broker's own: then the property is left out, and the message is not."""

    def rename(name: str) -> str:
        try:
            return shown(name)
        except Foreign:
            return ""

    return rename


def _renamed(text: str, topic: Callable[[str], str], group: Callable[[str], str]) -> str:
    """A property string with other names."""
    pairs = properties.decode(text)
    for keys, rename in ((_TOPIC_PROPERTIES, topic), (_GROUP_PROPERTIES, group)):
        for key in keys:
            if key in pairs:
                pairs[key] = rename(pairs[key])
    return properties.encode(pairs)
