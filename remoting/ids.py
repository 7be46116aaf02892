"""Ids that brokers return: offset message ids and recall handles."""

import base64
from dataclasses import dataclass
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final, Self

from remoting.errors import BodyError

# Characters of an id to bytes of its IP address (RocketMQ's MessageDecoder.createMessageId).
_IP_SIZES: Final = {32: 4, 56: 16}
_RECALL_VERSION: Final = "v1"


@dataclass(frozen=True, slots=True)
class OffsetMessageId:
    """Location of a stored message: the broker's address and the offset in its commit log.

    The text form is upper-case hex of IP (4 or 16 bytes), port (4) and offset (8).
    """

    host: str
    port: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an id. Raises BodyError."""
        ip_size = _IP_SIZES.get(len(text))
        try:
            raw = bytes.fromhex(text)
        except ValueError:
            raw = b""
        # fromhex() skips whitespace.
        if ip_size is None or len(raw) != ip_size + 12:
            raise BodyError(f"not an offset message id: {text[:60]!r}")
        port = int.from_bytes(raw[ip_size : ip_size + 4], "big")
        if port > 0xFFFF:
            raise BodyError(f"an offset message id with port {port}: {text!r}")
        host = inet_ntop(AF_INET if ip_size == 4 else AF_INET6, raw[:ip_size])
        return cls(host, port, int.from_bytes(raw[-8:], "big", signed=True))

    @property
    def address(self) -> str:
        """The broker's address as brokers register it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        ip = inet_pton(AF_INET6 if ":" in self.host else AF_INET, self.host)
        raw = ip + self.port.to_bytes(4, "big") + self.offset.to_bytes(8, "big", signed=True)
        return raw.hex().upper()


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """Handle of a delayed message, to recall it before its delivery (RocketMQ's RecallMessageHandle, version 1).

    `timestamp` is the delivery time in milliseconds since 1970, `message_id` the client's unique id.
    """

    topic: str
    broker_name: str
    timestamp: int
    message_id: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a handle; the base64 padding may be missing. Raises BodyError.

        As in Java, further parts after the five are ignored, and need not be text.
        """
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            version, topic, broker_name, timestamp, message_id = (part.decode() for part in raw.split(b" ")[:5])
            handle = cls(topic, broker_name, int(timestamp), message_id)
        except ValueError:
            raise BodyError("the recall handle is not valid") from None
        if version != _RECALL_VERSION or not topic or not broker_name or not message_id:
            raise BodyError("the recall handle is not valid")
        return handle

    def __str__(self) -> str:
        text = f"{_RECALL_VERSION} {self.topic} {self.broker_name} {self.timestamp} {self.message_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()
