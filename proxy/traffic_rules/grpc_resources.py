"""Resources: the names in messages of the v2 contract, wherever the contract has a `Resource`.

Which fields these are is read from the contract's own descriptors, so no message can be forgotten.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from grpc_gateway.status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, DeadLetterQueue, Resource, Status
from proxy.traffic_rules.name_mapping import Foreign, Names, is_shared
from remoting.errors import NotPermitted

_RESOURCE = Resource.DESCRIPTOR.full_name
_STATUS = Status.DESCRIPTOR.full_name
_DEAD_LETTER_QUEUE = DeadLetterQueue.DESCRIPTOR.full_name
# What may name a topic that is everybody's: what sends to it, and asks how.
_SENDING = frozenset(
    {"SendMessageRequest", "EndTransactionRequest", "RecallMessageRequest", "QueryRouteRequest", "Settings"}
)
# What fields of groups are called; those of all others are topics.
_GROUPS = frozenset({"group"})


class _Kind(Enum):
    TOPIC = auto()
    GROUP = auto()
    TEXT = auto()  # a status, whose message may name something
    ORIGIN = auto()  # where a dead letter comes from: a topic, as a plain text
    INNER = auto()  # a message with names further down


class _Step(NamedTuple):
    field: str
    kind: _Kind
    repeated: bool


@lru_cache(None)
def steps(descriptor: Descriptor) -> tuple[_Step, ...]:
    """The fields of a message that hold names, directly or further down."""
    return tuple(
        _Step(field.name, kind, field.is_repeated) for field in descriptor.fields if (kind := _kind(field)) is not None
    )


def _kind(field: FieldDescriptor) -> _Kind | None:
    inner = field.message_type
    if inner is None or inner.GetOptions().map_entry:
        return None
    if inner.full_name == _RESOURCE:
        return _Kind.GROUP if field.name in _GROUPS else _Kind.TOPIC
    if inner.full_name == _STATUS:
        return _Kind.TEXT
    if inner.full_name == _DEAD_LETTER_QUEUE:
        return _Kind.ORIGIN
    return _Kind.INNER if steps(inner) else None


@dataclass(frozen=True)
class ResourceNames:
    """`grpc_gateway.name_mapping.Names` by our own."""

    names: Names

    def inward(self, message: Any) -> None:
        names = self.names
        try:
            for kind, holder in _holders(message):
                if kind is _Kind.GROUP:
                    holder.name = names.group(holder.name)
                elif kind is _Kind.TOPIC:
                    if names.namespace and is_shared(holder.name) and not _sends(message):
                        raise NotPermitted(f"topic {holder.name} is everybody's; it can be sent to, and nothing else")
                    holder.name = names.topic(holder.name)
                elif kind is _Kind.ORIGIN:
                    holder.topic = names.topic(holder.topic)
        except NotPermitted as error:
            raise Refused(Code.FORBIDDEN, str(error)) from None

    def outward(self, message: Any) -> None:
        names = self.names
        for kind, holder in _holders(message):
            if kind is _Kind.GROUP:
                holder.name = names.shown_group(holder.name)
            elif kind is _Kind.TOPIC:
                holder.name = names.shown_topic(holder.name)
            elif kind is _Kind.ORIGIN:
                try:
                    holder.topic = names.shown_topic(holder.topic)
                except Foreign:
                    # Whoever sent the message has written this: it must not keep the message from its consumers.
                    holder.topic = ""
            else:
                shown = names.shown_text(holder.message)
                # Answers that are constants have nothing to hide, and stay as they are.
                if shown != holder.message:
                    holder.message = shown


def _sends(message: Any) -> bool:
    return message.DESCRIPTOR.name in _SENDING


def _holders(message: Any) -> Iterable[tuple[_Kind, Any]]:
    """Every message in this one that holds a name."""
    for step in steps(message.DESCRIPTOR):
        if step.repeated:
            values = getattr(message, step.field)
        elif message.HasField(step.field):
            values = (getattr(message, step.field),)
        else:
            continue
        for value in values:
            if step.kind is _Kind.INNER:
                yield from _holders(value)
            else:
                yield step.kind, value
