"""Decompression of the messages of all connections in steps, one message at a time.

Small messages may each become large: all at once would take much memory, and a whole one would hold the event loop.
"""

import asyncio
from typing import Final

from grpc_gateway.server import compression
from remoting.work_turns import WorkTurns

# Decompressed bytes of an iteration of the event loop.
_ITERATION_BYTES: Final = 1024 * 1024


class Decompressions:
    """Decompresses messages in the order of their requests."""

    def __init__(self) -> None:
        self._turns = WorkTurns(_ITERATION_BYTES)
        self._lock = asyncio.Lock()

    async def decompress(self, encoding: str, data: bytes, limit: int) -> bytes:
        """Return the decompressed data. Raises TooLarge and ValueError, as `compression.parts`."""
        async with self._lock:
            parts: list[bytes] = []
            remaining = compression.parts(encoding, data, limit)
            while True:
                await self._turns.next()
                # A failure may come after the work of a whole part.
                used = compression.PART_BYTES
                try:
                    part = next(remaining, None)
                    used = 1 if part is None else len(part) + 1
                finally:
                    self._turns.use(used)
                if part is None:
                    return b"".join(parts)
                parts.append(part)
