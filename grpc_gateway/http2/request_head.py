"""Heads of requests: header fields and their validation (RFC 9113 sections 8.1 to 8.3)."""

import re
from enum import IntEnum
from typing import Final

from grpc_gateway.http2.errors import ErrorCode, StreamFault


class Kind(IntEnum):
    """How a field is validated; decided once, when it is inserted into a table."""

    REGULAR = 0
    METHOD = 1
    SCHEME = 2
    AUTHORITY = 3
    PATH = 4
    # Fields whose values have rules of their own.
    SPECIAL = 5
    COOKIE = 6
    # Fields of gRPC itself, separate from the metadata of applications.
    PROTOCOL = 7
    # Regular fields with binary values in gRPC.
    BINARY = 8
    MALFORMED = 9


# Name and value of a field.
Pair = tuple[str, str]
# Kind, and name with value. Values that are not UTF-8 are decoded as Latin-1, as in grpcio.
Field = tuple[int, Pair]

# By name; other fields are REGULAR, or BINARY if their names end with -bin.
KINDS: Final = {
    ":method": Kind.METHOD,
    ":scheme": Kind.SCHEME,
    ":authority": Kind.AUTHORITY,
    ":path": Kind.PATH,
    "content-length": Kind.SPECIAL,
    "host": Kind.SPECIAL,
    "te": Kind.SPECIAL,
    "cookie": Kind.COOKIE,
    "content-type": Kind.PROTOCOL,
    "grpc-timeout": Kind.PROTOCOL,
    "grpc-encoding": Kind.PROTOCOL,
    "grpc-accept-encoding": Kind.PROTOCOL,
    "grpc-message": Kind.PROTOCOL,
    "grpc-message-type": Kind.PROTOCOL,
    "grpc-status": Kind.PROTOCOL,
    # Connection-specific, section 8.2.2.
    "connection": Kind.MALFORMED,
    "keep-alive": Kind.MALFORMED,
    "proxy-connection": Kind.MALFORMED,
    "transfer-encoding": Kind.MALFORMED,
    "upgrade": Kind.MALFORMED,
}
_REGULAR: Final = int(Kind.REGULAR)
_LAST_PSEUDO: Final = int(Kind.PATH)
_SPECIAL: Final = int(Kind.SPECIAL)
_COOKIE: Final = int(Kind.COOKIE)
_MALFORMED: Final = int(Kind.MALFORMED)
_PROTOCOL: Final = int(Kind.PROTOCOL)
_BINARY: Final = int(Kind.BINARY)

# Lower-case tokens (RFC 9110 section 5.6.2, RFC 9113 section 8.2.1).
_is_name = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+").fullmatch
_is_bad_value = re.compile(r"[\0\r\n]|\A[ \t]|[ \t]\Z").search
_is_length = re.compile(r"[0-9]{1,18}").fullmatch


def _special_kind(name: str, value: str) -> int:
    if name == "te":
        # Section 8.2.2.
        return _PROTOCOL if value == "trailers" else _MALFORMED
    return _SPECIAL if name == "host" or _is_length(value) else _MALFORMED


# Cache of names and their kinds, so that equal names are one object; connections use few distinct names.
_names: dict[str, tuple[str, int]] = {}
_MAX_CACHED_NAMES: Final = 1024
_MAX_CACHED_NAME_LENGTH: Final = 64


def make_field(name: str, value: str) -> Field:
    """Return the field with its kind, which is MALFORMED for an illegal name or value.

    Name and value are decoded as Latin-1.
    """
    known = _names.get(name)
    if known is None:
        known = _classify(name)
    text, kind = known
    # Most values are printable, which is found faster than by the pattern.
    if (not value.isprintable() or value.startswith(" ") or value.endswith(" ")) and _is_bad_value(value):
        kind = _MALFORMED
    elif kind == _SPECIAL:
        kind = _special_kind(text, value)
    if value.isascii():
        return kind, (text, value)
    try:
        return kind, (text, value.encode("latin-1").decode())
    except UnicodeDecodeError:
        return kind, (text, value)


def _classify(name: str) -> tuple[str, int]:
    kind = KINDS.get(name, _BINARY if name.endswith("-bin") else _REGULAR)
    classified = name, int(kind if name in KINDS or _is_name(name) else _MALFORMED)
    if len(name) <= _MAX_CACHED_NAME_LENGTH:
        if len(_names) >= _MAX_CACHED_NAMES:
            _names.clear()
        _names[name] = classified
    return classified


class RequestHead:
    """The header fields of a request. Equal header blocks share one head.

    fields: metadata of the application, in the order of arrival, with joined cookies at the end.
    binary: some of `fields` are of kind BINARY.
    protocol: fields of HTTP and gRPC by name.
    parsed: the application's result of parsing the head.

    Raises StreamFault if the request is malformed.
    """

    __slots__ = (
        "authority",
        "binary",
        "content_length",
        "fields",
        "method",
        "parsed",
        "path",
        "protocol",
        "scheme",
    )

    def __init__(self, fields: list[Field]) -> None:
        self.content_length: int | None = None
        self.parsed: object = None
        regular: list[Pair] = []
        protocol: dict[str, str] = {}
        self.fields = regular
        self.protocol = protocol
        self.binary = False
        others: list[Field] | None = None
        pseudo: list[str | None] = [None] * (_LAST_PSEUDO + 1)
        for field in fields:
            kind, pair = field
            if kind == _REGULAR:
                regular.append(pair)
            elif kind == _PROTOCOL:
                name, value = pair
                protocol[name] = value
            elif kind <= _LAST_PSEUDO:
                if pseudo[kind] is not None:
                    raise _malformed(f"{pair[0]} appears twice")
                if regular or protocol or others:
                    raise _malformed(f"{pair[0]} follows a regular field")
                pseudo[kind] = pair[1]
            elif kind == _BINARY:
                regular.append(pair)
                self.binary = True
            elif kind == _MALFORMED:
                raise _malformed(f"field {pair[0]!r} or its value is not allowed")
            elif others is None:
                others = [field]
            else:
                others.append(field)
        _, self.method, self.scheme, self.authority, self.path = pseudo
        if others is not None:
            self._add_special(others)
        self._check_pseudo()

    def _add_special(self, others: list[Field]) -> None:
        cookies = []
        for kind, pair in others:
            name, value = pair
            if kind == _COOKIE:
                # Section 8.2.3: clients may split cookies for better compression.
                cookies.append(value)
                continue
            self.protocol[name] = value
            if name == "content-length":
                if self.content_length not in (None, int(value)):
                    raise _malformed("two content-lengths differ")
                self.content_length = int(value)
            elif name == "host" and self.authority is not None and value.lower() != self.authority.lower():
                raise _malformed("host and :authority differ")
        if cookies:
            self.fields.append(("cookie", "; ".join(cookies)))

    def _check_pseudo(self) -> None:
        path = self.path
        if self.method == "CONNECT":
            # Section 8.5.
            if self.scheme is not None or path is not None or not self.authority:
                raise _malformed("CONNECT must have :authority and no :scheme or :path")
        elif not self.method or not self.scheme or not path:
            raise _malformed("a request needs :method, :scheme and :path")
        elif path[0] != "/" and not (path == "*" and self.method == "OPTIONS"):
            raise _malformed(":path does not begin with a slash")


def check_trailers(fields: list[Field]) -> None:
    """Raise StreamFault for fields that are not allowed in trailers (section 8.1)."""
    for kind, (name, _) in fields:
        if _REGULAR < kind <= _LAST_PSEUDO or kind == _MALFORMED:
            raise _malformed(f"field {name!r} must not be a trailer")


def _malformed(text: str) -> StreamFault:
    return StreamFault(ErrorCode.PROTOCOL_ERROR, text, "malformed")
