"""The remoting command: one request or response, decoded only as far as everybody needs it.

The header stays the dict that the JSON form is: what we do not know in it travels on untouched
(signatures, tracing, newer fields). The body is bytes that nobody looks at here.
"""

from collections.abc import Iterable
from typing import Any

import orjson

from remoting.codes import ONEWAY_FLAG, OWN_VERSION, RESPONSE_FLAG, LanguageCode, RequestCode, ResponseCode
from remoting.errors import HeaderError, InvalidRequest
from remoting.frame import Frame, encode_prefix

_loads, _dumps = orjson.loads, orjson.dumps
_LEAST, _MAX = -(2**31), 2**31 - 1
_STR = {str}
_LANGUAGE_NAMES = {language.value: language.name for language in LanguageCode}
_LANGUAGE_CODES = {language.name: language.value for language in LanguageCode}
# The binary header's code is a signed 16 bit number. A Java peer that cuts a larger code sends the
# low half; no other code has these numbers.
_BINARY_ALIASES = {
    code & 0xFFFF: int(code) for code in RequestCode if code > 0x7FFF and code & 0xFFFF not in set(RequestCode)
}


class RemotingCommand:
    """One request or response.

    `header` holds the JSON header's keys (code, language, version, opaque, flag, remark,
    extFields); `fields` are its ext fields (str to str), `body` the raw body, `serialize_type` the
    header encoding it came in or shall be written in. `trace_id` is that of a sampled request (W3C Trace Context).
    """

    __slots__ = ("body", "code", "fields", "flag", "header", "serialize_type", "trace_id")

    def __init__(
        self, header: dict[str, Any], fields: dict[str, str], body: bytes, serialize_type: int, code: int, flag: int
    ) -> None:
        self.header = header
        self.fields = fields
        self.body = body
        self.serialize_type = serialize_type
        # As in the header, at hand.
        self.code = code
        self.flag = flag
        self.trace_id: str | None = None

    @property
    def opaque(self) -> int:
        return self.header["opaque"]  # type: ignore[no-any-return]  # checked by decode()

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)

    @property
    def remark(self) -> str | None:
        remark = self.header.get("remark")
        return None if remark is None else str(remark)

    @property
    def version(self) -> int:
        version = self.header.get("version")
        return version if type(version) is int else 0

    @property
    def language(self) -> str:
        return str(self.header.get("language") or LanguageCode.OTHER.name)

    def integer(self, name: str) -> int:
        """A numeric ext field's value. Raises InvalidRequest naming a field that is absent or no number."""
        text = self.fields.get(name)
        if text is None:
            raise InvalidRequest(f"the field {name} is missing")
        try:
            return int(text)
        except ValueError:
            raise InvalidRequest(f"the field {name} is not a number: {text[:40]!r}") from None

    def copy(self) -> "RemotingCommand":
        """The same with a header of its own: sending overwrites the opaque."""
        return RemotingCommand(dict(self.header), self.fields, self.body, self.serialize_type, self.code, self.flag)

    def question(self) -> "RemotingCommand":
        """A copy that will be answered, though the one who sent it may want no answer."""
        asked = self.copy()
        asked.flag = asked.header["flag"] = self.flag & ~ONEWAY_FLAG
        return asked

    def encode(self) -> bytes:
        """The frame without its body, for `header, body` to be written one after the other."""
        header = _dumps(self.header) if self.serialize_type == 0 else _encode_binary(self)
        return encode_prefix(self.serialize_type, len(header), len(self.body)) + header

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        # Ext fields may hold credentials, bodies belong to users: neither is shown.
        return f"<{kind} {self.code} opaque={self.opaque} fields={sorted(self.fields)} body={len(self.body)}B>"


def request(
    code: int, fields: dict[str, str] | None = None, body: bytes = b"", oneway: bool = False
) -> RemotingCommand:
    """A request of our own; whoever sends it sets the opaque."""
    fields = {} if fields is None else fields
    header = {
        "code": int(code),
        "language": LanguageCode.PYTHON.name,
        "version": OWN_VERSION,
        "opaque": 0,
        "flag": ONEWAY_FLAG if oneway else 0,
        "extFields": fields,
    }
    return RemotingCommand(header, fields, body, 0, int(code), ONEWAY_FLAG if oneway else 0)


def response(
    code: int, fields: dict[str, str] | None = None, body: bytes = b"", remark: str | None = None
) -> RemotingCommand:
    """A response of our own; whoever writes it sets opaque and encoding after the request's."""
    fields = {} if fields is None else fields
    header = {
        "code": int(code),
        "language": LanguageCode.PYTHON.name,
        "version": OWN_VERSION,
        "opaque": 0,
        "flag": RESPONSE_FLAG,
        "extFields": fields,
    }
    if remark is not None:
        header["remark"] = remark
    return RemotingCommand(header, fields, body, 0, int(code), RESPONSE_FLAG)


def success(fields: dict[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
    """The answer SUCCESS."""
    return response(ResponseCode.SUCCESS, fields, body)


def answer(reply: RemotingCommand, opaque: int, serialize_type: int) -> RemotingCommand:
    """Turn a reply, in place, into the answer to a request of this opaque and header encoding."""
    header = reply.header
    header["opaque"] = opaque
    header["flag"] |= RESPONSE_FLAG
    reply.serialize_type = serialize_type
    return reply


def decode(frame: Frame) -> RemotingCommand:
    """Decode a frame's header. Raises HeaderError."""
    serialize_type, raw, body = frame
    if serialize_type == 0:
        try:
            header = _loads(raw)
        except orjson.JSONDecodeError as error:
            raise HeaderError(f"the header is not JSON: {error.msg}") from None
        if type(header) is not dict:
            raise HeaderError("the header is not a JSON object")
    else:
        header = _decode_binary(raw)
    opaque, code, flag = header.get("opaque"), header.get("code"), header.get("flag", 0)
    if type(opaque) is not int or not _LEAST <= opaque <= _MAX:
        raise HeaderError("the header has no valid opaque")
    if type(flag) is not int:
        raise HeaderError("the header's flag is not a number")
    header["flag"] = flag
    if type(code) is not int:
        raise _untenable("the header has no valid code", opaque, flag)
    fields = header.get("extFields")
    if fields is None:
        # Shared with the header, so that a field set later is also written.
        header["extFields"] = fields = {}
    elif type(fields) is not dict:
        raise _untenable("the header's extFields are not an object", opaque, flag)
    elif fields and not flag & RESPONSE_FLAG and set(map(type, fields.values())) != _STR:
        # Servers write strings; what a client writes is another matter.
        header["extFields"] = fields = _strings(fields)
    return RemotingCommand(header, fields, body, serialize_type, code, flag)


def _untenable(message: str, opaque: int, flag: int) -> HeaderError:
    return HeaderError(message, None if flag & RESPONSE_FLAG else opaque, bool(flag & ONEWAY_FLAG))


def _strings(fields: dict[str, Any]) -> dict[str, str]:
    """Ext fields as strings, as Java reads them: numbers and booleans in its spelling, null left out."""
    return {name: _java_text(value) for name, value in fields.items() if value is not None}


def _java_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return orjson.dumps(value).decode()


def _decode_binary(raw: bytes) -> dict[str, Any]:
    """Decode the ROCKETMQ header: code 2, language 1, version 2, opaque 4, flag 4, remark, ext fields."""
    if len(raw) < 21:
        raise HeaderError(f"a binary header of {len(raw)} bytes is too short")
    code = int.from_bytes(raw[0:2], "big", signed=True)
    header: dict[str, Any] = {
        "code": _BINARY_ALIASES.get(code, code),
        "language": _LANGUAGE_NAMES.get(raw[2], LanguageCode.OTHER.name),
        "version": int.from_bytes(raw[3:5], "big", signed=True),
        "opaque": int.from_bytes(raw[5:9], "big", signed=True),
        "flag": int.from_bytes(raw[9:13], "big", signed=True),
    }
    remark, position = _take(raw, 13, 4)
    fields, position = _take(raw, position, 4)
    if position != len(raw):
        raise HeaderError(f"{len(raw) - position} bytes follow the ext fields of a binary header")
    try:
        if remark:
            header["remark"] = remark.decode()
        header["extFields"] = dict(_pairs(fields))
    except UnicodeDecodeError:
        raise HeaderError("a binary header holds text that is not UTF-8") from None
    return header


def _take(raw: bytes, position: int, size: int) -> tuple[bytes, int]:
    """One length-prefixed piece and the position after it."""
    start = position + size
    stop = start + int.from_bytes(raw[position:start], "big")
    if start > len(raw) or stop > len(raw):
        raise HeaderError("a binary header ends in the middle of a field")
    return raw[start:stop], stop


def _pairs(raw: bytes) -> Iterable[tuple[str, str]]:
    position = 0
    while position < len(raw):
        key, position = _take(raw, position, 2)
        value, position = _take(raw, position, 4)
        # Java reads an empty value as null, which is as good as absent.
        if value:
            yield key.decode(), value.decode()


def _encode_binary(command: RemotingCommand) -> bytes:
    header = command.header
    remark = (command.remark or "").encode()
    pairs = bytearray()
    for key, value in command.fields.items():
        name, text = key.encode(), value.encode()
        pairs += len(name).to_bytes(2, "big") + name + len(text).to_bytes(4, "big") + text
    # A version or code that does not fit is cut as Java's cast to short cuts it.
    return b"".join(
        (
            (header["code"] & 0xFFFF).to_bytes(2, "big"),
            _LANGUAGE_CODES.get(command.language, LanguageCode.OTHER.value).to_bytes(1, "big"),
            (command.version & 0xFFFF).to_bytes(2, "big"),
            header["opaque"].to_bytes(4, "big", signed=True),
            (header["flag"] & 0xFFFFFFFF).to_bytes(4, "big"),
            len(remark).to_bytes(4, "big"),
            remark,
            len(pairs).to_bytes(4, "big"),
            pairs,
        )
    )
