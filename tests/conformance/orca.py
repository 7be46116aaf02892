"""Load reports (gRFC A51): what the cases ``orca_per_rpc`` and ``orca_oob`` ask of a server.

The report that a client reads is ``xds.data.orca.v3.OrcaLoadReport``: field 1 CPU and 2 memory (double), 4 the
request's costs and 5 utilizations (both map<string, double>). Two scalars and two maps need no generated code.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping

import grpc

from tests.conformance.protos.grpc.testing.messages_pb2 import TestOrcaReport

# The trailing metadata of a call that has a report.
METADATA_KEY = "endpoint-load-metrics-bin"
_SERVICE = "xds.service.orca.v3.OpenRcaService"
# Seconds. Clients ask for one report a second or so, and a server may send more.
_INTERVAL = 0.2


def encode(report: TestOrcaReport) -> bytes:
    """The report as a serialized OrcaLoadReport."""
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
    # One byte holds each length: the names of the cases are a few letters.
    entry = bytes((1 << 3 | 2, len(name))) + name + bytes((2 << 3 | 1,)) + struct.pack("<d", value)
    return bytes((field << 3 | 2, len(entry))) + entry


class OutOfBand:
    """The server's own report, streamed to whoever asks for it."""

    def __init__(self) -> None:
        self.report = TestOrcaReport()

    def handler(self) -> grpc.GenericRpcHandler:
        """``OpenRcaService``, without (de)serializers: requests, which name an interval, are not looked at."""
        stream: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_stream_rpc_method_handler(self._stream)
        return grpc.method_handlers_generic_handler(_SERVICE, {"StreamCoreMetrics": stream})

    async def _stream(self, _: bytes, __: object) -> AsyncIterator[bytes]:
        while True:
            yield encode(self.report)
            await asyncio.sleep(_INTERVAL)
