"""Load reports (gRFC A51), for the cases ``orca_per_rpc`` and ``orca_oob``.

The report that a client reads is ``xds.data.orca.v3.OrcaLoadReport``: field 1 CPU and 2 memory (double), 4 the
request's costs and 5 utilizations (both map<string, double>). It is encoded here without generated code.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping

import grpc

from tests.conformance.protos.grpc.testing.messages_pb2 import TestOrcaReport

# Key of the trailing metadata of a call with a report.
METADATA_KEY = "endpoint-load-metrics-bin"
_SERVICE = "xds.service.orca.v3.OpenRcaService"
# Seconds between reports. Clients request about one per second, and a server may send more.
_INTERVAL = 0.2


def encode(report: TestOrcaReport) -> bytes:
    """Return the report as a serialized OrcaLoadReport."""
    return b"".join(
        (
            _double(1, report.cpu_utilization),
            _double(2, report.memory_utilization),
            _doubles(4, report.request_cost),
            _doubles(5, report.utilization),
        )
    )


def _double(field: int, value: float) -> bytes:
    return bytes((field << 3 | 1,)) + struct.pack("<d", value) if value else b""


def _doubles(field: int, values: Mapping[str, float]) -> bytes:
    return b"".join(_entry(field, name.encode(), value) for name, value in values.items())


def _entry(field: int, name: bytes, value: float) -> bytes:
    # Lengths fit one byte, as the names in the cases are short.
    entry = bytes((1 << 3 | 2, len(name))) + name + bytes((2 << 3 | 1,)) + struct.pack("<d", value)
    return bytes((field << 3 | 2, len(entry))) + entry


class OutOfBand:
    """The server's report, streamed to clients on request."""

    def __init__(self) -> None:
        self.report = TestOrcaReport()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of ``OpenRcaService``. It has no (de)serializers, as the requested interval is ignored."""
        stream: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_stream_rpc_method_handler(self._stream)
        return grpc.method_handlers_generic_handler(_SERVICE, {"StreamCoreMetrics": stream})

    async def _stream(self, _: bytes, __: object) -> AsyncIterator[bytes]:
        while True:
            yield encode(self.report)
            await asyncio.sleep(_INTERVAL)
