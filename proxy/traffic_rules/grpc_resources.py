"""Names in messages of the v2 contract: every `Resource`, dead letter origin and status text.

The fields are found in the contract's descriptors, so that none can be missed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, DeadLetterQueue, Resource, Status
from protos.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from proxy.traffic_rules.name_mapping import ForeignName, NameMapping, is_shared
from remoting.errors import NotPermitted

_RESOURCE = Resource.DESCRIPTOR.full_name
_STATUS = Status.DESCRIPTOR.full_name
_DEAD_LETTER_QUEUE = DeadLetterQueue.DESCRIPTOR.full_name
# Messages that may name a shared topic: sends, and the queries that precede them.
_SENDS = frozenset(
    {"SendMessageRequest", "EndTransactionRequest", "RecallMessageRequest", "QueryRouteRequest", "Settings"}
)
# Names of the resource fields that are groups; all others are topics.
_GROUP_FIELDS = frozenset({"group"})
# The telemetry commands that contain a message.
_WITH_MESSAGES = frozenset(
    field.name
    for field in TelemetryCommand.DESCRIPTOR.oneofs_by_name["command"].fields
    if field.message_type is not None and "message" in field.message_type.fields_by_name
)


class _Kind(Enum):
    TOPIC = auto()
    GROUP = auto()
    TEXT = auto()  # a status, whose message may contain names
    ORIGIN = auto()  # the origin of a dead letter, a topic as plain text
    NESTED = auto()  # a message that contains names


class _Step(NamedTuple):
    field: str
    kind: _Kind
    repeated: bool


@lru_cache(None)
def steps(descriptor: Descriptor) -> tuple[_Step, ...]:
    """Return the fields of a message that hold names, directly or nested."""
    return tuple(
        _Step(field.name, kind, field.is_repeated) for field in descriptor.fields if (kind := _kind(field)) is not None
    )


def _kind(field: FieldDescriptor) -> _Kind | None:
    nested = field.message_type
    if nested is None or nested.GetOptions().map_entry:
        return None
    if nested.full_name == _RESOURCE:
        return _Kind.GROUP if field.name in _GROUP_FIELDS else _Kind.TOPIC
    if nested.full_name == _STATUS:
        return _Kind.TEXT
    if nested.full_name == _DEAD_LETTER_QUEUE:
        return _Kind.ORIGIN
    return _Kind.NESTED if steps(nested) else None


@dataclass(frozen=True)
class ResourceNames:
    """Name mapping of a gRPC client: implements `grpc_gateway.name_mapping.Names`."""

    names: NameMapping

    def map_request(self, message: Any) -> None:
        """Replace the client's names in a request by the brokers'. Raises Refused if one is not permitted."""
        names = self.names
        try:
            for kind, holder in _name_holders(message):
                if kind is _Kind.GROUP:
                    holder.name = names.broker_group(holder.name)
                elif kind is _Kind.TOPIC:
                    if names.namespace and is_shared(holder.name) and message.DESCRIPTOR.name not in _SENDS:
                        raise NotPermitted(f"topic {holder.name} is shared: messages may only be sent to it")
                    holder.name = names.broker_topic(holder.name)
                elif kind is _Kind.ORIGIN:
                    holder.topic = names.broker_topic(holder.topic)
        except NotPermitted as error:
            raise Refused(Code.FORBIDDEN, str(error)) from None

    def map_response(self, message: Any) -> None:
        """Replace the brokers' names in a message to the client by the client's. Raises ForeignName."""
        names = self.names
        if names.namespace and message.DESCRIPTOR is TelemetryCommand.DESCRIPTOR:
            _check_pushed(message)
        for kind, holder in _name_holders(message):
            if kind is _Kind.GROUP:
                holder.name = names.client_group(holder.name)
            elif kind is _Kind.TOPIC:
                holder.name = names.client_topic(holder.name)
            elif kind is _Kind.ORIGIN:
                try:
                    holder.topic = names.client_topic(holder.topic)
                except ForeignName:
                    # Set by the message's producer, which must not be able to keep the message from its consumers.
                    holder.topic = ""
            else:
                text = names.client_text(holder.message)
                # Constant replies contain no names and must not be changed.
                if text != holder.message:
                    holder.message = text


def _check_pushed(command: TelemetryCommand) -> None:
    """Reject a message of a shared topic, which may be another tenant's. Raises ForeignName."""
    kind = command.WhichOneof("command")
    if kind in _WITH_MESSAGES:
        topic = getattr(command, kind).message.topic.name
        if is_shared(topic):
            raise ForeignName(topic)


def _name_holders(message: Any) -> Iterable[tuple[_Kind, Any]]:
    """Yield every nested message that holds a name."""
    for step in steps(message.DESCRIPTOR):
        if step.repeated:
            values = getattr(message, step.field)
        elif message.HasField(step.field):
            values = (getattr(message, step.field),)
        else:
            continue
        for value in values:
            if step.kind is _Kind.NESTED:
                yield from _name_holders(value)
            else:
                yield step.kind, value
