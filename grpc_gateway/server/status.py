"""How a call ends: codes, the error that says so, and grpc-message's encoding."""

import re
from typing import Any
from urllib.parse import unquote_to_bytes

import grpc

from grpc_gateway.server.metadata import Metadata

OK = grpc.StatusCode.OK
# "OK": 0 and so on, by the member; grpcio's values are (number, text).
NUMBERS: dict[grpc.StatusCode, int] = {code: code.value[0] for code in grpc.StatusCode}
CODES: dict[int, grpc.StatusCode] = {number: code for code, number in NUMBERS.items()}

# What of grpc-message does not go as it is: all but printable ASCII, the percent sign, and a space at either end, where
# HTTP/2 allows none (RFC 9113 section 8.2.1).
_to_escape = re.compile(rb"[^ -$&-~]|\A | \Z")


class RpcError(Exception):
    """Ends the call with a status, from any handler; the same as `context.abort` where nothing can be awaited."""

    def __init__(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.trailing_metadata = trailing_metadata


def status_code(code: Any) -> grpc.StatusCode:
    """A code as grpcio takes it: a member, or its number. Raises ValueError for others."""
    if isinstance(code, grpc.StatusCode):
        return code
    if isinstance(code, int) and code in CODES:
        return CODES[code]
    raise ValueError(f"not a gRPC status code: {code!r}")


def encode_message(details: str) -> bytes:
    """grpc-message of the gRPC protocol over HTTP/2: UTF-8, percent-encoded."""
    return _to_escape.sub(lambda match: b"%%%02X" % match[0][0], details.encode("utf-8", "replace"))


def decode_message(encoded: bytes) -> str:
    return unquote_to_bytes(encoded).decode("utf-8", "replace")
