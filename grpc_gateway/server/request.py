"""A gRPC request's head."""

import re
from functools import lru_cache
from http import HTTPStatus
from typing import Final

import grpc

from grpc_gateway.http2.request_head import RequestHead
from grpc_gateway.server import compression
from grpc_gateway.server.metadata import Metadatum, decode

# The protocol's units of grpc-timeout, in seconds.
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_MAX_DIGITS: Final = 8
_is_grpc = re.compile(r"application/grpc(\Z|[+;])").match

CONTENT_TYPE: Final = "application/grpc"
_NO_ENCODINGS: Final[frozenset[str]] = frozenset()
_IDENTITY: Final = compression.IDENTITY


class Request:
    """A parsed head. Requests with equal header blocks share one, so it has no state of a call.

    http_status: the status to reject a request with that is not gRPC, else None.
    refusal: the gRPC status to end a malformed request with, else None.
    timeout: seconds, or None.
    encoding: compression of flagged messages.
    accepted: compressions that the client accepts.
    """

    __slots__ = (
        *("_fields", "_metadata", "_values"),
        *("accepted", "content_type", "encoding", "http_status", "path", "refusal", "timeout"),
    )

    def __init__(self, head: RequestHead) -> None:
        protocol = head.protocol
        self.path = head.path or ""
        self._fields = head.fields
        self._metadata: tuple[Metadatum, ...] | None = None
        self._values: dict[str, str] | None = None
        self.timeout: float | None = None
        self.encoding = protocol.get("grpc-encoding", _IDENTITY)
        accepted = protocol.get("grpc-accept-encoding")
        self.accepted = _NO_ENCODINGS if accepted is None else _accepted(accepted)
        self.content_type = protocol.get("content-type", "")
        self.http_status: HTTPStatus | None = None
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        if head.method != "POST":
            self.http_status = HTTPStatus.METHOD_NOT_ALLOWED
        elif self.content_type != CONTENT_TYPE and not _is_grpc(self.content_type.lower()):
            self.http_status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        else:
            self._parse(head, protocol.get("grpc-timeout"))

    def _parse(self, head: RequestHead, timeout: str | None) -> None:
        if head.binary:
            try:
                self._metadata = decode(head.fields)
            except ValueError as error:
                self._metadata = ()
                self.refusal = (grpc.StatusCode.INTERNAL, str(error))
        if timeout is not None:
            digits, unit = timeout[:-1], _UNITS.get(timeout[-1:])
            if unit is not None and len(digits) <= _MAX_DIGITS and digits.isdigit() and digits.isascii():
                self.timeout = int(digits) * unit
            else:
                self.refusal = (grpc.StatusCode.INTERNAL, "malformed grpc-timeout")
        if self.encoding != _IDENTITY and not compression.is_known(self.encoding):
            self.refusal = (
                grpc.StatusCode.UNIMPLEMENTED,
                f"grpc-encoding {self.encoding!r} is not supported; supported are {compression.ACCEPTED}",
            )

    @property
    def metadata(self) -> tuple[Metadatum, ...]:
        """The metadata in its order, with decoded binary values."""
        if self._metadata is None:
            self._metadata = decode(self._fields)
        return self._metadata

    @property
    def values(self) -> dict[str, str]:
        """The metadata by key, without decoding; of equal keys, the last value."""
        if self._values is None:
            # A comprehension, which compiled code runs in a third of the time.
            self._values = {name: value for name, value in self._fields}  # noqa: C416
        return self._values


@lru_cache(maxsize=64)
def _accepted(encodings: str) -> frozenset[str]:
    return frozenset(encodings.replace(" ", "").split(","))


def parsed_request(head: RequestHead) -> Request:
    """Return the head's request, which is parsed at the first call and kept in `head.parsed`."""
    parsed = head.parsed
    if isinstance(parsed, Request):
        return parsed
    head.parsed = request = Request(head)
    return request
