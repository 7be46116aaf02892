"""Decompression of delivered messages, such that small stored bodies take neither much memory nor much time at once."""

import asyncio

from grpc_gateway.message_decoding import from_stored
from protos.apache.rocketmq.v2.definition_pb2 import Message
from remoting.messages import StoredMessage

# Bytes of a decompressed body after which other connections have their turn.
_LARGE_BODY = 64 * 1024


class BodyDecompression:
    """Converts compressed messages, at most one large one per turn of the event loop for all clients together.

    max_body: maximum size of a decompressed body in bytes; a larger one is delivered as it is stored.
    """

    __slots__ = ("_lock", "max_body")

    def __init__(self, max_body: int) -> None:
        self.max_body = max_body
        self._lock = asyncio.Lock()

    async def message(
        self, stored: StoredMessage, *, topic: str, receipt_handle: str | None = None, delivery_attempt: int = 1
    ) -> Message:
        """Return the v2 form of a stored message. To be called just before the message is sent."""
        async with self._lock:
            message = from_stored(
                stored,
                topic=topic,
                receipt_handle=receipt_handle,
                delivery_attempt=delivery_attempt,
                max_body=self.max_body,
            )
            # A body of the stored size could not be decompressed, after up to `max_body` bytes of work.
            if len(message.body) > _LARGE_BODY or len(message.body) == len(stored.body):
                await asyncio.sleep(0)
            return message
