"""Messages of the command line: ext fields of a send, stored messages as objects and as lines."""

import base64
import os
import time
from collections.abc import Mapping
from itertools import count
from typing import Any

from proxy.tools.cli.output import Output, clock, printable
from remoting import messages, properties, send_message
from remoting.errors import BodyError
from remoting.ids import OffsetMessageId
from remoting.messages import StoredMessage

PRODUCER_GROUP = "gantry-cli"
# Maximum number of body characters in a line.
_LONGEST_BODY = 2000
_numbers = count(1)
_PROCESS = os.urandom(6).hex().upper()


def message_id() -> str:
    """Return a new id of 32 hex digits, as unique as those of Java clients."""
    return f"{_PROCESS}{time.time_ns() // 1_000_000 & 0xFFFFFFFFFFFF:012X}{next(_numbers) & 0xFFFFFFFF:08X}"


def send_fields(
    topic: str,
    broker: str,
    queue: int,
    pairs: Mapping[str, str],
    born: int | None = None,
    flag: int = 0,
) -> dict[str, str]:
    """Build the ext fields of a SEND_MESSAGE_V2; `born` is in milliseconds since 1970, default now."""
    return send_message.send_fields(
        producer_group=PRODUCER_GROUP,
        topic=topic,
        queue_id=queue,
        broker=broker,
        born_timestamp=int(time.time() * 1000) if born is None else born,
        flag=flag,
        properties=properties.encode(pairs),
    )


def to_object(broker: str, message: StoredMessage) -> dict[str, Any]:
    """Return a message for JSON; a body that is not UTF-8 is base64, as `body_base64`.

    A message that cannot be decompressed keeps its stored body, and `error` names the reason.
    """
    pairs = message.property_map
    return {
        "topic": message.topic,
        "broker": broker,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "id": _id(message),
        "tag": pairs.get(properties.TAGS),
        "keys": pairs.get(properties.KEYS, "").split(),
        "message_group": pairs.get(properties.SHARDING_KEY),
        "born": message.born_timestamp,
        "born_host": _host(message.born_host),
        "stored": message.store_timestamp,
        "flag": message.flag,
        "properties": pairs,
        **_content(message),
    }


def _content(message: StoredMessage) -> dict[str, str]:
    try:
        body, error = messages.body(message), {}
    except BodyError as trouble:
        # The messages behind it are still shown.
        body, error = message.body, {"error": str(trouble)}
    try:
        return {"body": body.decode(), **error}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode(), **error}


def _id(message: StoredMessage) -> str:
    known = message.get(properties.UNIQ_CLIENT_MESSAGE_ID)
    host, port = message.store_host
    return known or str(OffsetMessageId(host, port, message.commit_log_offset))


def _host(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def show(output: Output, broker: str, message: StoredMessage, more: Mapping[str, object] | None = None) -> None:
    """Show a message; `more` are further values, for JSON."""
    if output.json:
        output.dump({**to_object(broker, message), **(more or {})})
        return
    pairs = message.property_map
    output.line(
        (clock(message.store_timestamp), "dim"),
        "  ",
        (f"{broker}/{message.queue_id}", "cyan"),
        ("@", "dim"),
        (f"{message.queue_offset:,}", "cyan"),
        "  ",
        *_labelled("tag", pairs.get(properties.TAGS)),
        *_labelled("key", pairs.get(properties.KEYS)),
        *_labelled("group", pairs.get(properties.SHARDING_KEY)),
        _text(message),
    )


def _labelled(label: str, value: str | None) -> list[str | tuple[str, str]]:
    return [(f"{label}=", "dim"), (printable(value), "yellow"), "  "] if value else []


def _text(message: StoredMessage) -> str:
    try:
        body = messages.body(message)
    except BodyError as error:
        return f"<{len(message.body):,} bytes: {printable(str(error))}>"
    try:
        text = printable(body.decode())
    except UnicodeDecodeError:
        return f"<{len(body):,} bytes: {body[:16].hex(' ')}{' …' if len(body) > 16 else ''}>"
    return text if len(text) <= _LONGEST_BODY else f"{text[:_LONGEST_BODY]}… ({len(body):,} bytes)"
