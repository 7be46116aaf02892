"""gRPC status: codes, the error that carries one, and the encoding of grpc-message."""

import re
from typing import Any

import grpc

from grpc_gateway.server.metadata import Metadata

OK = grpc.StatusCode.OK
# grpcio's enum values are pairs of number and text.
NUMBERS: dict[grpc.StatusCode, int] = {code: code.value[0] for code in grpc.StatusCode}
CODES: dict[int, grpc.StatusCode] = {number: code for code, number in NUMBERS.items()}

# Bytes of grpc-message to encode: all but printable ASCII, the percent sign, and a space at either end, which HTTP/2
# does not allow in field values (RFC 9113 section 8.2.1).
_to_escape = re.compile(rb"[^ -$&-~]|\A | \Z")


class RpcError(Exception):
    """Ends the call with a status, like `context.abort`, which has to be awaited."""

    def __init__(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> None:
        super().__init__(details)
        # Handlers may give values of any type; they are checked when the status is encoded.
        self.code: Any = code
        self.details: Any = details
        self.trailing_metadata: Any = trailing_metadata


def status_code(code: Any) -> grpc.StatusCode:
    """Return the code that is given as a member or its number, as grpcio allows. Raises ValueError for others."""
    if isinstance(code, grpc.StatusCode):
        return code
    if isinstance(code, int) and code in CODES:
        return CODES[code]
    raise ValueError(f"not a gRPC status code: {code!r}")


def encode_message(details: str) -> bytes:
    """Return the value of grpc-message: UTF-8, percent-encoded."""
    return _to_escape.sub(lambda match: b"%%%02X" % match[0][0], details.encode("utf-8", "replace"))
