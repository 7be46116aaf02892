"""The remoting command: one request or response with a decoded header and a raw body.

The header is the dict of its JSON form. Its ext fields (with signatures, tracing, newer fields) are forwarded
unchanged; unknown keys of the header beside them are dropped, and so are values that Java cannot decode:
brokers would close a connection that others use.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import orjson

from remoting.codes import ONEWAY_FLAG, OWN_VERSION, RESPONSE_FLAG, LanguageCode, RequestCode, ResponseCode
from remoting.compilation import mypyc_attr
from remoting.errors import HeaderError, InvalidRequest
from remoting.frame import Frame, encode_prefix

_loads, _dumps = orjson.loads, orjson.dumps
_MIN_INT: Final = -(2**31)
_MAX_INT: Final = 2**31 - 1
# Maximum number of ext fields of a request. RocketMQ's headers have up to about 30. A field takes at least 100 bytes.
MAX_EXT_FIELDS: Final = 64
# Maximum length of a number in an ext field, in characters: that of the smallest 64-bit integer.
_MAX_NUMBER_LENGTH: Final = 20
_MIN_LONG: Final = -(2**63)
_MAX_LONG: Final = 2**63 - 1
# Keys of a header that are forwarded, with the type of their values.
_TYPES: Final[dict[str, type]] = {
    "opaque": int,
    "code": int,
    "flag": int,
    "extFields": dict,
    "language": str,
    "version": int,
    "remark": str,
    "serializeTypeCurrentRPC": str,
}
_KEYS: Final = frozenset(_TYPES)
# Names of ext fields that the JSON library of brokers takes for references and classes.
_REFERENCE: Final = "$ref"
_CLASS: Final = "@type"
# Estimate of the memory of a decoded header: 1 KiB of dicts, and 3 bytes for each byte of the header, because text has
# 1 to 4 bytes per character, and small strings have an overhead.
_HEADER_MEMORY: Final = 1024
_HEADER_MEMORY_FACTOR: Final = 3
_LANGUAGE_NAMES: Final = {language.value: language.name for language in LanguageCode}
_LANGUAGE_CODES: Final = {language.name: language.value for language in LanguageCode}
# Language of own requests and responses.
_LANGUAGE: Final = LanguageCode.PYTHON.name
# The binary header's code is a signed 16-bit number. Java truncates larger codes to their lower half; no other code has
# these numbers.
_TRUNCATED_CODES: Final = {
    code & 0xFFFF: int(code) for code in RequestCode if code > 0x7FFF and code & 0xFFFF not in set(RequestCode)
}

# A response's JSON header as Java servers write it, in alphabetical order: up to its opaque, and the rest. Text
# in values cannot look like the keys after `extFields`, because its quotes are escaped.
_match_response: Final = re.compile(
    rb'\{"code":(0|[1-9]\d{0,8}),(?:"extFields":\{[^}]*\},)?"flag":1,"language":"[A-Z]+","opaque":(0|[1-9]\d{0,8}),'
).match
_match_rest: Final = re.compile(
    rb'(?:"remark":"[^"\\]*",)?"serializeTypeCurrentRPC":"JSON","version":[1-9]\d{0,8}\}'
).fullmatch
# Rests that match: most responses of a server have the same.
_rests: set[bytes] = set()
_MAX_RESTS: Final = 64
_MAX_REST: Final = 64


_QUOTE: Final = ord('"')


# Nothing that it refers to can refer to it.
@mypyc_attr(acyclic=True)
class RemotingCommand:
    """One request or response.

    Attributes:
        body: the raw body.
        serialize_type: encoding of the header, as received or to be written.
        opaque: the number that connects request and response; `encode` writes it to the header.
        code, flag: copies of the header's values, for speed.
        memory: estimate of the memory that the command occupies, in bytes.
        trace_id: trace id of a sampled request (W3C Trace Context).
    """

    __slots__ = (
        *("_fields", "_header", "_opaque_end", "_opaque_start", "_raw", "body"),
        *("code", "flag", "memory", "opaque", "serialize_type", "trace_id"),
    )

    def __init__(
        self,
        header: dict[str, Any] | None,
        fields: dict[str, str] | None,
        body: bytes,
        serialize_type: int,
        opaque: int,
        code: int,
        flag: int,
    ) -> None:
        # None: not decoded yet. Then `_raw` is the JSON header, with its opaque from `_opaque_start` to `_opaque_end`.
        self._header = header
        self._fields = fields
        self._raw = b""
        self._opaque_start = self._opaque_end = 0
        self.body = body
        self.serialize_type = serialize_type
        self.opaque = opaque
        self.code = code
        self.flag = flag
        self.memory = len(body)
        self.trace_id: str | None = None

    @property
    def header(self) -> dict[str, Any]:
        """The keys of the JSON header: code, language, version, flag, remark, extFields. Raises HeaderError."""
        header = self._header
        return self._decode_header() if header is None else header

    @property
    def fields(self) -> dict[str, str]:
        """The ext fields of the header. Raises HeaderError."""
        if self._fields is None:
            self._decode_header()
        fields = self._fields
        assert fields is not None
        return fields

    def field(self, name: str) -> str | None:
        """Return `fields.get(name)`, without decoding the header of a server's response if that is possible.

        name: not that of another key of the header.
        """
        if self._fields is not None:
            return self._text(name)
        raw = self._raw
        # Without escapes, all quotes are those of keys and values. Not `in`, which first takes the bytes for a number.
        if raw.find(b"\\") < 0:
            key = f'"{name}":'.encode()
            # The last of equal keys counts.
            start = raw.rfind(key)
            if start < 0:
                return None
            start += len(key)
            end = raw.find(b'"', start + 1)
            if raw[start] == _QUOTE and end > 0:
                value = raw[start + 1 : end]
                if value.isascii():
                    return value.decode("ascii")
        return self._text(name)

    def _text(self, name: str) -> str | None:
        """Return a decoded ext field; None if a server sent no text for it."""
        # Compiled code may not read values of other types as text.
        fields: Any = self.fields
        value = fields.get(name)
        return value if isinstance(value, str) else None

    def set_fields(self, fields: dict[str, str]) -> None:
        """Replace the ext fields."""
        self._fields = self.header["extFields"] = fields

    def _decode_header(self) -> dict[str, Any]:
        decoded = decode((0, self._raw, b""))
        header = self._header = decoded.header
        self._fields = decoded.fields
        self._raw = b""
        return header

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
        """Return the value of a numeric ext field. Raises InvalidRequest if it is missing or not a 64-bit integer."""
        text = self.fields.get(name)
        if text is None:
            raise InvalidRequest(f"the field {name} is missing")
        try:
            number = int(text) if len(text) <= _MAX_NUMBER_LENGTH else None
        except ValueError:
            number = None
        if number is None or not _MIN_LONG <= number <= _MAX_LONG:
            raise InvalidRequest(f"the field {name} is not a number: {text[:40]!r}")
        return number

    def copy(self) -> "RemotingCommand":
        """Return a copy with its own header, because sending overwrites the opaque."""
        return RemotingCommand(
            dict(self.header), self.fields, self.body, self.serialize_type, self.opaque, self.code, self.flag
        )

    def copy_with_response(self) -> "RemotingCommand":
        """Return a copy without the oneway flag, so that the receiver responds."""
        request = self.copy()
        request.flag = request.header["flag"] = self.flag & ~ONEWAY_FLAG
        return request

    def encode(self) -> bytes:
        """Return the frame up to its body, which is written separately."""
        serialize_type, decoded = self.serialize_type, self._header
        if serialize_type != 0:
            header = _encode_binary(self)
        elif decoded is not None:
            decoded["opaque"] = self.opaque
            header = _dumps(decoded)
        else:
            raw = self._raw
            header = raw[: self._opaque_start] + b"%d" % self.opaque + raw[self._opaque_end :]
        return encode_prefix(serialize_type, len(header), len(self.body)) + header

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        # Values of ext fields may be credentials, and bodies are user data.
        return f"<{kind} {self.code} opaque={self.opaque} fields={sorted(self.fields)} body={len(self.body)}B>"


def request(
    code: int, fields: dict[str, str] | None = None, body: bytes = b"", oneway: bool = False
) -> RemotingCommand:
    """Return a new request; sending it sets the opaque."""
    fields = {} if fields is None else fields
    code, flag = int(code), ONEWAY_FLAG if oneway else 0
    header = {
        "code": code,
        "language": _LANGUAGE,
        "version": OWN_VERSION,
        "opaque": 0,
        "flag": flag,
        "extFields": fields,
    }
    return RemotingCommand(header, fields, body, 0, 0, code, flag)


def response(
    code: int, fields: dict[str, str] | None = None, body: bytes = b"", remark: str | None = None
) -> RemotingCommand:
    """Return a new response; `answer` sets its opaque and encoding to the request's."""
    fields = {} if fields is None else fields
    header = {
        "code": int(code),
        "language": _LANGUAGE,
        "version": OWN_VERSION,
        "opaque": 0,
        "flag": RESPONSE_FLAG,
        "extFields": fields,
    }
    if remark is not None:
        header["remark"] = remark
    return RemotingCommand(header, fields, body, 0, 0, int(code), RESPONSE_FLAG)


def success(fields: dict[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
    """Return a new response with code SUCCESS."""
    return response(ResponseCode.SUCCESS, fields, body)


def answer(reply: RemotingCommand, opaque: int, serialize_type: int) -> RemotingCommand:
    """Make a command, in place, the response to a request with this opaque and header encoding."""
    if not reply.flag & RESPONSE_FLAG:
        reply.flag |= RESPONSE_FLAG
        reply.header["flag"] = reply.flag
    reply.opaque = opaque
    reply.serialize_type = serialize_type
    return reply


def decode(frame: Frame) -> RemotingCommand:
    """Decode a frame's header. Raises HeaderError."""
    serialize_type, raw, body = frame
    header: dict[str, Any] = _load(raw) if serialize_type == 0 else _decode_binary(raw)
    opaque, code, flag = header.get("opaque"), header.get("code"), header.get("flag", 0)
    if type(opaque) is not int or not _MIN_INT <= opaque <= _MAX_INT:
        raise HeaderError("the header has no valid opaque")
    if type(flag) is not int or not _MIN_INT <= flag <= _MAX_INT:
        raise HeaderError("the header's flag is not a 32-bit number")
    if flag == 0:
        header["flag"] = 0
    if type(code) is not int or not _MIN_INT <= code <= _MAX_INT:
        raise _answerable_error("the header has no valid code", opaque, flag)
    request = not flag & RESPONSE_FLAG
    version = header.get("version")
    if (
        type(version) is not int
        or not _MIN_INT <= version <= _MAX_INT
        or type(header.get("language")) is not str
        or type(header.get("remark", "")) is not str
        or type(header.get("serializeTypeCurrentRPC", "")) is not str
        or not _KEYS.issuperset(header)
    ):
        _drop_unreadable(header)
    found = header.get("extFields")
    if found is None:
        # The header refers to the same dict, so that a field that is set later is written.
        header["extFields"] = found = {}
    elif type(found) is not dict:
        raise _answerable_error("the header's extFields are not an object", opaque, flag)
    fields: dict[str, str] = found
    if fields:
        if request and len(fields) > MAX_EXT_FIELDS:
            raise _answerable_error(f"more than {MAX_EXT_FIELDS} ext fields in a request", opaque, flag)
        if _REFERENCE in fields or _CLASS in fields:
            raise _answerable_error(f"an ext field is named {_REFERENCE} or {_CLASS}", opaque, flag)
        if not _are_strings(found):
            # Clients, unlike servers, may write other types than strings.
            try:
                header["extFields"] = fields = _strings(fields)
            except orjson.JSONEncodeError:
                raise _answerable_error("an ext field is nested too deeply", opaque, flag) from None
    command = RemotingCommand(header, fields, body, serialize_type, opaque, code, flag)
    if request:
        command.memory += _HEADER_MEMORY + _HEADER_MEMORY_FACTOR * len(raw)
    return command


def decode_from_server(frame: Frame) -> RemotingCommand:
    """Decode a frame from a broker or name server; a response's header only when it is needed. Raises HeaderError.

    Most responses are only passed on. Of a header that is not read at once, only ext fields that are no JSON make
    `header` and `fields` raise HeaderError later. Servers, unlike clients, write no keys twice or escaped.
    """
    serialize_type, raw, body = frame
    found = _match_response(raw) if serialize_type == 0 else None
    if found is None or not _is_rest(raw[found.end() :]):
        return decode(frame)
    opaque: bytes = found[2]
    command = RemotingCommand(None, None, body, 0, int(opaque), int(found[1]), RESPONSE_FLAG)
    command._raw = raw
    command._opaque_start = start = found.start(2)
    command._opaque_end = start + len(opaque)
    return command


def _is_rest(rest: bytes) -> bool:
    """Return whether a header may end so, after its opaque."""
    if rest in _rests:
        return True
    if _match_rest(rest) is None:
        return False
    if len(rest) <= _MAX_REST:
        if len(_rests) >= _MAX_RESTS:
            _rests.clear()
        _rests.add(rest)
    return True


def _load(raw: bytes) -> dict[str, Any]:
    try:
        header = _loads(raw)
    except orjson.JSONDecodeError as error:
        raise HeaderError(f"the header is not JSON: {error.msg}") from None
    if type(header) is not dict:
        raise HeaderError("the header is not a JSON object")
    return header


def _drop_unreadable(header: dict[str, Any]) -> None:
    """Remove unknown keys, and values that Java cannot decode or that might be too deep to be encoded again."""
    for key, value in list(header.items()):
        if key == "extFields":
            continue
        if type(value) is not _TYPES.get(key):
            del header[key]
    version = header.get("version")
    if version is not None and not _MIN_INT <= version <= _MAX_INT:
        del header["version"]


def _answerable_error(message: str, opaque: int, flag: int) -> HeaderError:
    """Return an error that can be sent in response to a request."""
    return HeaderError(message, None if flag & RESPONSE_FLAG else opaque, bool(flag & ONEWAY_FLAG))


def _are_strings(fields: dict[str, object]) -> bool:
    # A generator would cost more.
    for value in fields.values():  # noqa: SIM110
        if type(value) is not str:
            return False
    return True


def _strings(fields: dict[str, Any]) -> dict[str, str]:
    """Convert the values of ext fields to strings like Java: numbers and booleans in its spelling, without nulls."""
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
        "code": _TRUNCATED_CODES.get(code, code),
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
        pairs = _pairs(fields)
        header["extFields"] = dict(pairs if header["flag"] & RESPONSE_FLAG else islice(pairs, MAX_EXT_FIELDS + 1))
    except UnicodeDecodeError:
        raise HeaderError("a binary header holds text that is not UTF-8") from None
    return header


def _take(raw: bytes, position: int, size: int) -> tuple[bytes, int]:
    """Return the length-prefixed bytes at a position, and the position after them."""
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
        # Java reads an empty value as null, which means that the field is missing.
        if value:
            yield key.decode(), value.decode()


def _encode_binary(command: RemotingCommand) -> bytes:
    header = command.header
    remark = (command.remark or "").encode()
    pairs = bytearray()
    for key, value in command.fields.items():
        name, text = key.encode(), value.encode()
        pairs += len(name).to_bytes(2, "big") + name + len(text).to_bytes(4, "big") + text
    # Like Java's cast to short, this truncates a version or code that does not fit.
    return b"".join(
        (
            (header["code"] & 0xFFFF).to_bytes(2, "big"),
            _LANGUAGE_CODES.get(command.language, LanguageCode.OTHER.value).to_bytes(1, "big"),
            (command.version & 0xFFFF).to_bytes(2, "big"),
            command.opaque.to_bytes(4, "big", signed=True),
            (header["flag"] & 0xFFFFFFFF).to_bytes(4, "big"),
            len(remark).to_bytes(4, "big"),
            remark,
            len(pairs).to_bytes(4, "big"),
            pairs,
        )
    )
