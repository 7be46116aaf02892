"""All workers behind one answer: an ASGI application between the guard and the API, where there are several.

The worker that receives a request asks the others and joins their answers by `aggregation_table`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import orjson

from proxy.admin.http import problems, worker_request
from proxy.admin.http.guard import Application, Message, Receive, Send
from proxy.admin.http.merging import Join, Told
from proxy.admin.http.problems import Refused
from proxy.admin.http.worker_request import Question, Reply
from proxy.operations.paging import MAX_DIGITS
from proxy.workers.worker_rpc import Gone, Tell, WorkerRpc, outcome, silence

if TYPE_CHECKING:
    from fastapi import FastAPI

_log = logging.getLogger("gantry.admin")

_KEPT_HEADERS = frozenset((b"allow", b"retry-after"))


@dataclass(frozen=True, slots=True)
class Gathered:
    """What workers answered, in the order of their numbers, and those that did not."""

    replies: list[Reply]
    missing: list[int]


class Inquiry:
    """One request for all workers, or for the one that it names."""

    def __init__(self, together: "Together", question: Question, path: Mapping[str, str]) -> None:
        self.question = question
        # What stands for the names in the route's path, and the query; of several equal names the last, as routes do.
        self.path = path
        self.query = dict(parse_qsl(question.query.decode("latin-1"), keep_blank_values=True))
        self.here = together.number
        self.all = together.all
        self.named = _named(self.query.get("worker"), self.all)
        self._together = together

    @property
    def workers(self) -> Sequence[int]:
        """Whom it is for."""
        return self.all if self.named is None else (self.named,)

    async def one(self, worker: int, patience: float, question: Question | None = None) -> Reply:
        """A worker's answer. Raises Refused where there is none."""
        reply = await self._together.ask(worker, question or self.question, patience)
        if reply is None:
            raise Refused(503, silence(worker), more={"missing_workers": [worker]})
        return reply

    async def stream(self, worker: int, tell: Tell, begin: float, silence: float) -> None:
        """Tell a worker's answer as it comes; see `Together.stream`."""
        try:
            await self._together.stream(worker, self.question, tell, begin, silence)
        except (Gone, TimeoutError) as error:
            self._together.missed(worker, error)
            raise

    async def each(
        self, patience: float, question: Callable[[int], Question] | None = None, workers: Sequence[int] | None = None
    ) -> Gathered:
        """The answers of all that are asked, at the same time."""
        asked = self.workers if workers is None else workers
        make = question or (lambda _: self.question)
        replies = await asyncio.gather(*(self._together.ask(worker, make(worker), patience) for worker in asked))
        missing = [worker for worker, reply in zip(asked, replies, strict=True) if reply is None]
        return Gathered([reply for reply in replies if reply is not None], missing)

    def join(self, gathered: Gathered, join: Join) -> Reply:
        """One answer from several. Raises Refused where the request has failed, at a worker that has what it is about.

        What some do not have, others may. A read goes on without workers that could not serve it; a write that did not
        reach all has failed.
        """
        replies, missing = gathered.replies, list(gathered.missing)
        served = [reply for reply in replies if reply.ok]
        failed = [reply for reply in replies if not reply.ok and (reply.status != 404 or not served)]
        reads = self.question.method == "GET"
        if not served or (not reads and (failed or missing)):
            raise _failure(replies, failed, missing)
        missing += [reply.worker for reply in failed]
        told = [Told(reply.worker, reply.data, reply.aside) for reply in served]
        return self.made(join(told, self.query), missing, served[0].status)

    def made(self, data: dict[str, Any], missing: Sequence[int] = (), status: int = 200) -> Reply:
        """An answer of our own."""
        if missing:
            data["missing_workers"] = sorted(missing)
        return Reply(self.here, status, [(b"content-type", b"application/json")], orjson.dumps(data))


def _failure(replies: Sequence[Reply], failed: Sequence[Reply], missing: Sequence[int]) -> Refused:
    """Why a request was not served by all that it was for."""
    more: dict[str, Any] = {}
    if missing:
        more["missing_workers"] = sorted(missing)
    if (replies and missing) or len({reply.status for reply in replies}) > 1:
        more["workers"] = [_status(reply) for reply in replies]
    if not failed:
        names = ", ".join(map(str, sorted(missing)))
        text = f"not every worker was reached: {names} did not answer" if replies else f"worker {names} does not answer"
        return Refused(503, text, more=more)
    return _refusal(max(failed, key=lambda reply: reply.status), more)


def _status(reply: Reply) -> dict[str, Any]:
    told: dict[str, Any] = {"worker": reply.worker, "status": reply.status}
    return told if reply.ok else {**told, "detail": _refusal(reply).detail}


def _refusal(reply: Reply, more: Mapping[str, Any] | None = None) -> Refused:
    """A worker's problem as ours."""
    try:
        told = reply.data
        faults = [(fault["where"], fault["detail"]) for fault in told.get("faults", ())]
        detail = str(told["detail"])
    except (ValueError, KeyError, TypeError):
        detail, faults = problems.MISTAKE, []
    headers = {name.decode(): value.decode("latin-1") for name, value in reply.headers if name in _KEPT_HEADERS}
    return Refused(reply.status, detail, headers, faults, more)


def _named(text: str | None, workers: range) -> int | None:
    """The worker that a request names. Raises Refused."""
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal():
        raise Refused(422, "the request is not as described", faults=[("query worker", "a worker's number, from 0")])
    return found(text, workers)


def found(text: str, workers: range) -> int:
    """The worker of this number. Raises Refused."""
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS and int(text) in workers):
        raise Refused(404, f"there is no worker {text[:MAX_DIGITS]}: they are 0 to {workers[-1]}")
    return int(text)


# What serves a route. A stream is sent by the row itself, which then gives no reply.
Row = Callable[[Inquiry, Receive, Send], Awaitable[Reply | None]]


class Together:
    """The API of all workers.

    api: this one's. outcomes: what became of questions to others. rows: what serves which method and path of it.
    """

    def __init__(
        self,
        api: "FastAPI",
        colleagues: WorkerRpc,
        outcomes: Counter[str],
        rows: Mapping[tuple[str, str], Row],
    ) -> None:
        self._api: Application = api
        self._routes = api.state.routes
        self._rows = rows
        self._colleagues = colleagues
        self._outcomes = outcomes
        self.number = colleagues.number
        self.all = colleagues.all
        # Those that were missed, so that each silence is logged once.
        self._silent: set[int] = set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        row, path = self._row(scope["method"], scope["path"])
        if row is None:
            await self._api(scope, receive, send)
            return
        kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        body = (await receive())["body"]
        question = Question(scope["method"], scope["path"], scope["query_string"], kind, body)
        reply = await row(Inquiry(self, question, path), receive, send)
        if reply is None:
            return
        if not reply.ok:
            raise _refusal(reply)
        headers = [(name, value) for name, value in reply.headers if name != b"content-length"]
        if reply.body:
            headers.append((b"content-length", b"%d" % len(reply.body)))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    def _row(self, method: str, path: str) -> tuple[Row | None, dict[str, str]]:
        for route in self._routes:
            fitting = route.path_regex.match(path) if method in route.methods else None
            if fitting is not None:
                return self._rows.get((method, route.path)), fitting.groupdict()
        return None, {}

    async def ask(self, worker: int, question: Question, patience: float) -> Reply | None:
        """A worker's answer; None where it is not there, or takes longer than `patience` seconds."""
        if worker == self.number:
            return await worker_request.performed(self._api, question, worker)
        try:
            parts = await self._colleagues.whole(worker, worker_request.NAME, question.encode(), patience)
        except (Gone, TimeoutError) as error:
            self.missed(worker, error)
            return None
        reply = Reply(worker)
        for part in parts:
            reply.take(part)
        self.heard(worker)
        return reply

    async def stream(self, worker: int, question: Question, tell: Tell, begin: float, silence: float) -> None:
        """Tell a worker's answer in parts, as they come. Raises Gone, and TimeoutError where no first part comes within
        `begin` seconds, or no other within `silence`."""
        if worker == self.number:
            await worker_request.perform(self._api, question, tell)
            return
        begun = False
        async with self._colleagues.ask(worker, worker_request.NAME, question.encode()) as call:
            while True:
                async with asyncio.timeout(silence if begun else begin):
                    part = await anext(call, None)
                if part is None:
                    return
                if not begun:
                    begun = True
                    self.heard(worker)
                await tell(part)

    def heard(self, worker: int) -> None:
        """A worker has answered."""
        self._outcomes["answered"] += 1
        self._silent.discard(worker)

    def missed(self, worker: int, error: Gone | TimeoutError) -> None:
        """A worker has not."""
        became = outcome(error)
        self._outcomes[became] += 1
        if worker not in self._silent:
            self._silent.add(worker)
            _log.warning("worker %d does not answer what the admin API asks it (%s)", worker, became)


def without(question: Question, *names: str, **more: str) -> Question:
    """The same with another query: without these names, and with these values."""
    pairs = parse_qsl(question.query.decode("latin-1"), keep_blank_values=True)
    kept = [(name, value) for name, value in pairs if name not in names and name not in more]
    return replace(question, query=urlencode([*kept, *more.items()]).encode())
