"""Validation of requests, and parts of responses."""

import re
from collections.abc import Sequence

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import (
    Broker,
    Code,
    FilterExpression,
    FilterType,
    MessageQueue,
    Resource,
    Status,
)
from remoting.names import RETRY_PREFIX

_NAME = re.compile(r"[%|a-zA-Z0-9_+-]{1,255}", re.ASCII)
_SQL = "SQL92"


def topic(resource: Resource) -> str:
    """Return a topic's name, RocketMQ's own topics included. Raises Refused."""
    return _name(resource.name, "topic", Code.ILLEGAL_TOPIC)


def group(resource: Resource) -> str:
    """Return a consumer group's name. Raises Refused."""
    return _name(resource.name, "consumer group", Code.ILLEGAL_CONSUMER_GROUP)


def _name(name: str, what: str, code: Code) -> str:
    if not _NAME.fullmatch(name):
        raise Refused(code, f"not the name of a {what}: {name[:80]!r}" if name else f"the request names no {what}")
    return name


def is_retry(name: str) -> bool:
    """Return whether a topic holds a group's redeliveries: clients never subscribe to it themselves."""
    return name.startswith(RETRY_PREFIX)


def ok_status(missing: Sequence[str] = ()) -> Status:
    """Return OK; its text names missing parts of the response."""
    return Status(code=Code.OK, message=f"not complete: {'; '.join(dict.fromkeys(missing))}" if missing else "OK")


def expression(text: str, kind: str) -> FilterExpression:
    """Return a filter expression, from the fields of a heartbeat."""
    return FilterExpression(type=FilterType.SQL if kind == _SQL else FilterType.TAG, expression=text)


def queue_of(topic: str, broker: str, number: int) -> MessageQueue:
    """Return a message queue."""
    return MessageQueue(topic=Resource(name=topic), broker=Broker(name=broker), id=number)
