"""Writing of the trace records of gRPC clients' messages to the trace topic, in batches."""

import logging
import time
from itertools import count

from grpc_gateway.message_trace import MessageTrace
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting import properties, send_message
from remoting.codes import STORED, RequestCode
from remoting.errors import RemotingError
from remoting.requests import REQUESTS

_log = logging.getLogger("gantry.grpc")

# Timeout of one write in seconds.
_TIMEOUT = 3.0
# Bytes of one trace message: of its body, and of its keys, by which records are found. Brokers permit 32,767 bytes of
# all properties.
_MAX_BODY = 120_000
_MAX_KEYS = 16_000
_PRODUCER = "_INNER_TRACE_PRODUCER-gantry"


class MessageTraceWriter:
    """Writes the records of `trace`; those that cannot be written are dropped and counted."""

    def __init__(self, core: Messaging, trace: MessageTrace) -> None:
        self._core = core
        self._trace = trace
        self._turn = count()
        self._last_error = ""

    async def flush(self) -> None:
        """Write all waiting records."""
        waiting = self._trace.waiting
        while waiting:
            keys: dict[str, None] = {}
            texts: list[bytes] = []
            size = key_size = 0
            while waiting:
                names, text = waiting[0]
                if texts and (size + len(text) > _MAX_BODY or key_size + len(names) > _MAX_KEYS):
                    break
                self._trace.take()
                texts.append(text)
                keys.update(dict.fromkeys(_keys(names)))
                size, key_size = size + len(text), key_size + len(names) + 1
            outcome = "written" if await self._write(keys, b"".join(texts)) else "failed"
            self._trace.counts[outcome] += len(texts)

    async def _write(self, keys: dict[str, None], body: bytes) -> bool:
        try:
            route = await self._core.backend.route(self._trace.topic)
            broker, queue = route.writable[next(self._turn) % len(route.writable)]
            fields = send_message.send_fields(
                producer_group=_PRODUCER,
                topic=self._trace.topic,
                queue_id=queue,
                broker=broker,
                born_timestamp=time.time_ns() // 1_000_000,
                properties=properties.encode({properties.KEYS: " ".join(keys)}),
            )
            command = commands.request(RequestCode.SEND_MESSAGE_V2, fields, body)
            spec = REQUESTS[RequestCode.SEND_MESSAGE_V2]
            reply = await self._core.backend.request(broker, spec, command, _TIMEOUT, None)
            error = "" if reply.code in STORED else f"{broker} answered {reply.code}: {reply.remark}"
        except (RemotingError, ZeroDivisionError) as failure:
            error = str(failure) or "it has no queue to write to"
        if error and error != self._last_error:
            _log.warning("message traces are lost: the topic %s: %s", self._trace.topic, error)
        self._last_error = error
        return not error


def _keys(names: bytes) -> list[str]:
    """Return the keys of a record, without a part of one over the limit."""
    if len(names) > _MAX_KEYS:
        names = names[: _MAX_KEYS + 1].rpartition(b" ")[0]
    return names.decode().split()
