"""The export file: JSON lines, described in `docs/operating/cli.md`. A file appears when it is complete."""

import base64
import binascii
import gzip
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, cast

import orjson
import zstandard
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from proxy.tools import standard_streams
from proxy.tools.cli.client import CommandError

VERSION = 1
_ZSTD = ".zst"
_GZIP = ".gz"
STDOUT = Path("-")
_HEAD = "gantry-export"


class _Line(BaseModel):
    # Unknown fields are ignored, so that files of later minor versions stay readable.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Head(_Line):
    """The first line."""

    kind: Literal["gantry-export"] = "gantry-export"
    version: int = VERSION
    created: str = ""


class TopicLine(_Line):
    """A topic; the numbers of queues are per broker."""

    kind: Literal["topic"] = "topic"
    topic: str = Field(min_length=1)
    type: str = "NORMAL"
    read_queues: int = Field(ge=1)
    write_queues: int = Field(ge=1)
    permission: int = Field(6, ge=0, le=15)


class OffsetLine(_Line):
    """The committed offset of a group in a queue of the source."""

    topic: str
    broker: str
    queue: NonNegativeInt
    offset: NonNegativeInt


class GroupLine(_Line):
    """A consumer group: SubscriptionGroupConfig as its broker keeps it, and its offsets."""

    kind: Literal["group"] = "group"
    group: str = Field(min_length=1)
    configuration: dict[str, Any] = {}
    offsets: tuple[OffsetLine, ...] = ()

    @field_validator("configuration")
    @classmethod
    def _has_attributes_by_name(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value.get("attributes") or {}, dict):
            raise ValueError("attributes are an object")
        return value


class MessageLine(_Line):
    """A message; born and stored are milliseconds since 1970. Its body is text, or base64."""

    kind: Literal["message"] = "message"
    topic: str = Field(min_length=1)
    broker: str
    queue: NonNegativeInt
    offset: NonNegativeInt
    born: int
    born_host: str = ""
    stored: int = 0
    flag: int = 0
    properties: dict[str, str] = {}
    body: str | None = None
    body_base64: str | None = None

    @model_validator(mode="after")
    def _has_a_body(self) -> "MessageLine":
        if (self.body is None) == (self.body_base64 is None):
            raise ValueError("a message has either body or body_base64")
        self.content()
        return self

    def content(self) -> bytes:
        """Return the body."""
        if self.body is not None:
            return self.body.encode()
        try:
            return base64.b64decode(self.body_base64 or "", validate=True)
        except binascii.Error:
            raise ValueError("body_base64 is not base64") from None

    @property
    def origin(self) -> str:
        """Return a name of the message that is unique among all messages of the source queue."""
        return f"{self.broker}/{self.queue}/{self.offset}@{self.stored}"


class End(_Line):
    """The last line: the number of lines of each kind."""

    kind: Literal["end"] = "end"
    topics: int
    groups: int
    messages: int


Line = Head | TopicLine | GroupLine | MessageLine | End
_ADAPTER: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


class Writer:
    """Write lines, and count them by kind."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.counts = {"topic": 0, "group": 0, "message": 0}

    def write(self, line: Mapping[str, object]) -> None:
        """Write one line."""
        kind = str(line["kind"])
        if kind in self.counts:
            self.counts[kind] += 1
        self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """Write a new file, compressed by its suffix; it appears under its name when complete. The path - is stdout.

    A pipe or a device gets the lines directly.
    """
    if path == STDOUT:
        yield Writer(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    with _naming(path):
        if path.exists() and not path.is_file():
            opened: AbstractContextManager[BinaryIO] = path.open("wb")
        else:
            opened = _replacing(path)
        with opened as file, _compressed(path.suffix, file) as compressed:
            yield Writer(compressed)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the path to errors of a full disk."""
    try:
        yield
    except OSError as error:
        if not standard_streams.is_of_file(error):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file that replaces the one at the path when it is complete."""
    # A link stays: the file that it names is replaced.
    target = path.resolve()
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        with _created(unfinished, path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _created(unfinished: Path, path: Path) -> BinaryIO:
    """Open the unfinished file. Raises OSError that names the file which the user knows."""
    try:
        return unfinished.open("wb")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def _compressed(suffix: str, file: BinaryIO) -> Iterator[BinaryIO]:
    if suffix == _ZSTD:
        with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as compressed:
            yield cast(BinaryIO, compressed)
    elif suffix == _GZIP:
        with gzip.GzipFile("", "wb", fileobj=file) as compressed:
            yield cast(BinaryIO, compressed)
    else:
        yield file


def read(path: Path) -> Iterator[tuple[int, Line]]:
    """Yield the lines with their numbers, from 1 on. Raises CommandError, which names the line, for an invalid one."""
    number = 0
    line: Line | None = None
    try:
        with _opened(path) as file:
            for number, text in enumerate(file, 1):
                if isinstance(line, End):
                    raise CommandError(f"{path}, line {number}: there is more behind the end")
                line = _parse(path, number, text)
                yield number, line
    except (zstandard.ZstdError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CommandError(f"{path}, after line {number}: not {path.suffix[1:]} data: {error}") from None
    if not isinstance(line, End):
        raise CommandError(f"{path}, after line {number}: the file has no end; it was cut off")


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[bytes]]:
    with path.open("rb") as file:
        if path.suffix == _ZSTD:
            with zstandard.ZstdDecompressor().stream_reader(file) as plain:
                yield _split(cast(BinaryIO, plain))
        elif path.suffix == _GZIP:
            with gzip.GzipFile(fileobj=file) as plain:
                yield iter(plain)
        else:
            yield file


def _split(file: BinaryIO) -> Iterator[bytes]:
    rest = b""
    while chunk := file.read(1 << 18):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _parse(path: Path, number: int, text: bytes) -> Line:
    where = f"{path}, line {number}"
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise CommandError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
    try:
        line = _ADAPTER.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        raise CommandError(f"{where}: {f'{place}: ' if place else ''}{first['msg']}") from None
    if isinstance(line, Head) != (number == 1):
        raise CommandError(f"{where}: the first line, and no other, has the kind {_HEAD!r}; is this an export?")
    if isinstance(line, Head) and line.version != VERSION:
        raise CommandError(f"{where}: version {line.version} of the format; this program reads version {VERSION}")
    return line
