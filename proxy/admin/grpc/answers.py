"""What requests must look like, and what answers are made of."""

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
    """A topic's name, RocketMQ's own topics' too. Raises Refused."""
    return _name(resource.name, "topic", Code.ILLEGAL_TOPIC)


def group(resource: Resource) -> str:
    """A consumer group's name. Raises Refused."""
    return _name(resource.name, "consumer group", Code.ILLEGAL_CONSUMER_GROUP)


def _name(name: str, what: str, code: Code) -> str:
    if not _NAME.fullmatch(name):
        raise Refused(code, f"not the name of a {what}: {name[:80]!r}" if name else f"the request names no {what}")
    return name


def is_retry(name: str) -> bool:
    """Whether a topic holds a group's redeliveries: nobody subscribes to one on purpose."""
    return name.startswith(RETRY_PREFIX)


def well(missing: Sequence[str] = ()) -> Status:
    """OK; its text says what is missing from the answer."""
    return Status(code=Code.OK, message=f"not complete: {'; '.join(dict.fromkeys(missing))}" if missing else "OK")


def expression(text: str, kind: str) -> FilterExpression:
    """A filter expression, from the words of a heartbeat."""
    return FilterExpression(type=FilterType.SQL if kind == _SQL else FilterType.TAG, expression=text)


def queue_of(topic: str, broker: str, number: int) -> MessageQueue:
    """A message queue."""
    return MessageQueue(topic=Resource(name=topic), broker=Broker(name=broker), id=number)
