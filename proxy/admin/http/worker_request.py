"""Questions that workers ask each other: a request of the API's, performed behind its guard, by another process."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from proxy.operations import worker_extras as aside

if TYPE_CHECKING:
    from proxy.admin.http.guard import Application, Message
    from proxy.workers.worker_rpc import Tell

_log = logging.getLogger("gantry.admin")

# What `Colleagues.answers` calls this kind of question.
NAME = "http"
# What a part of an answer begins with: status and headers, content, and what is told aside.
_HEAD, _BODY, _ASIDE = b"H", b"B", b"A"


@dataclass(frozen=True, slots=True)
class Question:
    """A request whose caller has been let in. aside: what is to be told besides (`proxy.operations.worker_extras`)."""

    method: str
    path: str
    query: bytes = b""
    kind: bytes = b""
    body: bytes = b""
    aside: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """As it is sent: JSON on a line, then the body."""
        texts = (self.query.decode("latin-1"), self.kind.decode("latin-1"))
        # A path is whatever the caller wrote.
        path = self.path.encode("utf-8", "replace").decode()
        return orjson.dumps([self.method, path, *texts, self.aside]) + b"\n" + self.body

    @classmethod
    def decode(cls, content: bytes) -> "Question":
        """The reverse. Raises ValueError."""
        line, _, body = content.partition(b"\n")
        method, path, query, kind, names = orjson.loads(line)
        return cls(method, path, query.encode("latin-1"), kind.encode("latin-1"), body, tuple(names))

    @property
    def scope(self) -> "Message":
        """As ASGI has it."""
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode("utf-8", "replace"),
            "root_path": "",
            "query_string": self.query,
            "headers": [(b"host", b"localhost"), *([(b"content-type", self.kind)] if self.kind else ())],
            "client": None,
            "server": None,
        }


@dataclass(slots=True)
class Reply:
    """A worker's answer to a question."""

    worker: int
    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    aside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status < 300

    @property
    def data(self) -> dict[str, Any]:
        """The JSON object that it is."""
        found: dict[str, Any] = orjson.loads(self.body)
        return found

    def take(self, part: bytes) -> None:
        """The next part of it."""
        tag, content = part[:1], part[1:]
        if tag == _HEAD:
            self.status, self.headers = head(part)
        elif tag == _BODY:
            self.body += content
        else:
            self.aside = orjson.loads(content)


def head(part: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Status and headers, from an answer's first part."""
    status, headers = orjson.loads(part[1:])
    return status, [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def content(part: bytes) -> bytes | None:
    """A piece of an answer's content; None: this part has none."""
    return part[1:] if part[:1] == _BODY else None


async def perform(application: "Application", question: Question, tell: "Tell") -> None:
    """Have the API answer, in parts."""
    given = started = False

    async def receive() -> "Message":
        nonlocal given
        if given:
            # Whoever wants no more cancels this.
            await asyncio.Event().wait()
        given = True
        return {"type": "http.request", "body": question.body, "more_body": False}

    async def send(message: "Message") -> None:
        nonlocal started
        if message["type"] == "http.response.start":
            started = True
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message.get("headers", ())]
            await tell(_HEAD + orjson.dumps([message["status"], headers]))
        elif message.get("body"):
            await tell(_BODY + message["body"])

    with aside.listening(question.aside) as told:
        try:
            await application(question.scope, receive, send)
        except Exception:
            # A mistake of ours. Of an answer that has begun there is no more; of any other the asker learns by this.
            _log.exception("%s %s failed", question.method, question.path)
            if not started:
                raise
    if told:
        await tell(_ASIDE + orjson.dumps(told))


async def performed(application: "Application", question: Question, worker: int) -> Reply:
    """The API's own whole answer, here."""
    reply = Reply(worker)

    async def tell(part: bytes) -> None:
        reply.take(part)

    with contextlib.suppress(Exception):
        # It has been logged; the reply says 500.
        await perform(application, question, tell)
    return reply
