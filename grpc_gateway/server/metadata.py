"""Metadata: header fields of gRPC, with binary values if the key ends with -bin."""

import re
from base64 import b64decode, b64encode
from binascii import Error as BinasciiError
from collections.abc import Iterable
from typing import NamedTuple

from grpc_gateway.http2.request_head import KINDS, Kind, Pair

# As handlers pass it; grpc.aio.Metadata iterates as such pairs, too.
Metadata = Iterable[tuple[str, str | bytes]]
Fields = list[tuple[bytes, bytes]]


class Metadatum(NamedTuple):
    """One entry, of the form that grpcio passes to handlers."""

    key: str
    value: str | bytes


# Fields of the protocol itself, which applications neither read nor write.
RESERVED = frozenset(name for name, kind in KINDS.items() if kind in (Kind.SPECIAL, Kind.PROTOCOL)) | {"connection"}
_is_key = re.compile(r"[0-9a-z_.-]+").fullmatch
_is_value = re.compile(rb"[ -~]*").fullmatch


def decode(fields: Iterable[Pair]) -> tuple[Metadatum, ...]:
    """Return metadata with decoded binary values. Raises ValueError for a binary value that is not base64."""
    metadata: list[Metadatum] = []
    for field in fields:
        name, value = field
        if name.endswith("-bin"):
            # One field may have several values, joined by commas.
            metadata += (Metadatum(name, _decode_binary(name, part)) for part in value.split(","))
        else:
            metadata.append(Metadatum(name, value))
    return tuple(metadata)


def _decode_binary(name: str, value: str) -> bytes:
    text = value.strip().rstrip("=")
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (BinasciiError, ValueError):
        raise ValueError(f"the value of {name} is not base64") from None


def encode(metadata: Metadata) -> Fields:
    """Return the fields to send. Raises ValueError for keys and values that gRPC does not allow, or reserves."""
    return [(key.encode("ascii"), _encode_value(key, value)) for key, value in map(_checked, metadata)]


def _checked(datum: tuple[str, str | bytes]) -> tuple[str, str | bytes]:
    key, value = datum
    if not _is_key(key) or key in RESERVED:
        raise ValueError(f"metadata key {key!r} is not allowed")
    return key, value


def _encode_value(key: str, value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    if key.endswith("-bin"):
        return b64encode(raw).rstrip(b"=")
    if not _is_value(raw):
        raise ValueError(f"the value of metadata key {key!r} is not printable ASCII")
    return raw.strip(b" ")
