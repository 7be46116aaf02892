"""Signatures of requests: RocketMQ's AclClientRPCHook and AclUtils.combineRequestContent.

The ext fields `AccessKey`, `Signature` and, for temporary credentials, `SecurityToken` name and prove the user. The
signature covers the values of all ext fields but itself, in the order of their names, and the body. It does not cover
the request code, the opaque, the flag and the names of the fields, and it has no time: it can be replayed.
"""

import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

from remoting.command import RemotingCommand
from remoting.message_query import BY_UNIQUE_ID

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  # a name
SIGNATURE_FIELDS = (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN)

# Clients up to 4.9.3 add this field of QUERY_MESSAGE after they have signed the request.
_UNSIGNED_FIELD = BY_UNIQUE_ID
_LAST_VERSION_WITH_UNSIGNED_FIELD = 399

_BLOCK_SIZE = 64
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))

_OrderedValues = Callable[[dict[str, str]], Iterable[str]]
# By the names of the ext fields as received: a client sends the same few again and again, and sorting them takes most
# of the time. The limits (orders, and characters of all names of one) bound the memory.
_ordered_values: dict[tuple[str, ...], _OrderedValues] = {}
_MAX_ORDERS = 512
_MAX_CACHED_LENGTH = 1024


class SecretKey:
    """A secret, prepared for HMAC-SHA1: less than half the time of `hmac.digest` for each request."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: str) -> None:
        key = secret.encode()
        if len(key) > _BLOCK_SIZE:
            key = hashlib.sha1(key, usedforsecurity=False).digest()
        key = key.ljust(_BLOCK_SIZE, b"\0")
        self._inner = hashlib.sha1(key.translate(_INNER_PAD), usedforsecurity=False)
        self._outer = hashlib.sha1(key.translate(_OUTER_PAD), usedforsecurity=False)

    def digest(self, signed: bytes) -> bytes:
        """Return HMAC-SHA1 (RFC 2104) of these bytes."""
        inner = self._inner.copy()
        inner.update(signed)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key with its secret. `security_token` belongs to temporary credentials."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)
    key: SecretKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", SecretKey(self.secret_key))


def content(command: RemotingCommand) -> bytes:
    """Return the bytes that a request's signature covers."""
    fields = command.fields
    if _UNSIGNED_FIELD in fields and command.version <= _LAST_VERSION_WITH_UNSIGNED_FIELD:
        fields = {name: value for name, value in fields.items() if name != _UNSIGNED_FIELD}
    names = tuple(fields)
    ordered_values = _ordered_values.get(names)
    if ordered_values is None:
        ordered_values = _find_order(names)
    return "".join(ordered_values(fields)).encode() + command.body


def _find_order(names: tuple[str, ...]) -> _OrderedValues:
    """Return the function from ext fields with these names to the values to sign, and cache it."""
    # Java compares UTF-16 units. Surrogates sort before U+E000, so that code points have another order.
    text = "".join(names)
    order = sorted(names, key=None if text.isascii() else _utf16)
    if SIGNATURE in names:
        order.remove(SIGNATURE)
    if len(order) > 1:
        ordered_values: _OrderedValues = itemgetter(*order)
    else:
        ordered_values = partial(_values, order)
    if len(text) <= _MAX_CACHED_LENGTH:
        if len(_ordered_values) >= _MAX_ORDERS:
            _ordered_values.clear()
        _ordered_values[names] = ordered_values
    return ordered_values


def _values(order: list[str], fields: dict[str, str]) -> list[str]:
    return [fields[name] for name in order]


def signature(key: SecretKey, signed: bytes) -> str:
    """Return the signature of these bytes: HMAC-SHA1 in base64."""
    return b2a_base64(key.digest(signed), newline=False).decode()


def sign(command: RemotingCommand, credentials: Credentials) -> None:
    """Sign a request, in place of a signature that it may already have. Its ext fields are changed in place."""
    fields = command.fields
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    elif SECURITY_TOKEN in fields:
        del fields[SECURITY_TOKEN]
    fields[SIGNATURE] = signature(credentials.key, content(command))


def without_signature(fields: Mapping[str, str]) -> dict[str, str]:
    """Return ext fields without the proof of their sender."""
    return {name: value for name, value in fields.items() if name not in SIGNATURE_FIELDS}


def verify(command: RemotingCommand, key: SecretKey) -> bool:
    """Return whether a request is signed with this secret. The time does not depend on how similar a signature is."""
    received = command.fields.get(SIGNATURE, "").encode()
    return hmac.compare_digest(received, b2a_base64(key.digest(content(command)), newline=False))


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
