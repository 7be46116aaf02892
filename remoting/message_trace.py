"""Trace records of messages, in the bodies of a trace topic's messages (RocketMQ's TraceDataEncoder).

A body is text. Its records end with the character 2, their fields are separated by the character 1.
"""

from dataclasses import dataclass

from remoting.errors import BodyError

_FIELD, _RECORD = "\x01", "\x02"
# As Java writes a message without keys.
_NONE = "null"
# Values of `code` (ConsumeReturnType).
CONSUMED, FAILED = 0, 4


@dataclass(frozen=True, slots=True)
class Publication:
    """A message that was sent. Times are ms, `time` since 1970. kind: ordinal of the client's MessageType."""

    time: int
    region: str
    group: str
    topic: str
    message_id: str
    tag: str
    keys: str
    store_host: str
    body_length: int
    cost: int
    kind: int
    offset_message_id: str
    success: bool


@dataclass(frozen=True, slots=True)
class ConsumptionStart:
    """A message that was delivered to a consumer. request_id: the same in the record of its end."""

    time: int
    region: str
    group: str
    request_id: str
    message_id: str
    retries: int
    keys: str


@dataclass(frozen=True, slots=True)
class ConsumptionEnd:
    """A delivered message that was acknowledged or has failed. `time` and `group` are 0 and empty in old records."""

    request_id: str
    message_id: str
    cost: int
    success: bool
    keys: str
    code: int
    time: int = 0
    group: str = ""


Record = Publication | ConsumptionStart | ConsumptionEnd


def encode(record: Record) -> str:
    """Return a record as text."""
    match record:
        case Publication():
            values: tuple[object, ...] = (
                "Pub",
                record.time,
                record.region,
                record.group,
                record.topic,
                record.message_id,
                record.tag,
                record.keys,
                record.store_host,
                record.body_length,
                record.cost,
                record.kind,
                record.offset_message_id,
                _flag(record.success),
            )
        case ConsumptionStart():
            values = (
                "SubBefore",
                record.time,
                record.region,
                record.group,
                record.request_id,
                record.message_id,
                record.retries,
                # Java's decoder loses empty fields at the end, and then fails.
                record.keys or _NONE,
            )
        case ConsumptionEnd():
            values = (
                "SubAfter",
                record.request_id,
                record.message_id,
                record.cost,
                _flag(record.success),
                record.keys,
                record.code,
                record.time,
                record.group,
            )
    return _FIELD.join(str(value).replace(_FIELD, " ").replace(_RECORD, " ") for value in values) + _RECORD


def _flag(value: bool) -> str:
    return "true" if value else "false"


def decode(body: bytes, about: str = "") -> list[Record]:
    """Return the records of a trace message that are about messages sent or delivered. Raises BodyError.

    about: a text, such as a message id, without which records are not decoded.
    """
    try:
        records = [line.split(_FIELD) for line in body.decode().split(_RECORD) if line and about in line]
        return [_decoders[fields[0]](fields) for fields in records if fields[0] in _decoders]
    except (UnicodeDecodeError, ValueError, IndexError):
        raise BodyError("a trace message has another format") from None


def _publication(fields: list[str]) -> Record:
    # Old clients write no offset message id, and new ones add the client's address.
    modern = len(fields) >= 14
    region, group, topic, message_id, tag, keys, store_host = fields[2:9]
    return Publication(
        time=int(fields[1]),
        region=region,
        group=group,
        topic=topic,
        message_id=message_id,
        tag=tag,
        keys=keys,
        store_host=store_host,
        body_length=int(fields[9]),
        cost=int(fields[10]),
        kind=int(fields[11]),
        offset_message_id=fields[12] if modern else "",
        success=fields[13 if modern else 12] == "true",
    )


def _start(fields: list[str]) -> Record:
    region, group, request_id, message_id = fields[2:6]
    return ConsumptionStart(
        int(fields[1]), region, group, request_id, message_id, int(fields[6]), "" if fields[7] == _NONE else fields[7]
    )


def _end(fields: list[str]) -> Record:
    timed = len(fields) >= 9
    return ConsumptionEnd(
        fields[1],
        fields[2],
        int(fields[3]),
        fields[4] == "true",
        fields[5] if len(fields) > 5 else "",
        int(fields[6]) if len(fields) > 6 else 0,
        int(fields[7]) if timed else 0,
        fields[8] if timed else "",
    )


_decoders = {"Pub": _publication, "SubBefore": _start, "SubAfter": _end}
