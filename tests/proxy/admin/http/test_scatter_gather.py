"""How several workers answer as one, over APIs that are a few lines; real workers are in tests/proxy/workers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import orjson
import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute

from proxy.admin.http import merged_tap, merging, problems, worker_request
from proxy.admin.http.aggregation_table import ROWS
from proxy.admin.http.application import ROUTERS
from proxy.admin.http.guard import Message
from proxy.admin.http.merge_strategies import Anyone, Everyone, Holder
from proxy.admin.http.merged_tap import tapped
from proxy.admin.http.problems import Refused
from proxy.admin.http.scatter_gather import Row, Together
from proxy.admin.http.worker_request import Question
from proxy.workers.worker_rpc import Tell
from tests.proxy.workers.test_colleagues import Parent

pytestmark = pytest.mark.anyio

PATH = "/v1/thing"
SUM = Everyone(merging.objects({"count": merging.total}, lambda item: item["count"]), patience=30)


class Fleet:
    """Workers that answer at `PATH` as `answers` says: a status and JSON by worker; without one they are silent."""

    def __init__(self, answers: dict[int, tuple[int, Any]], rows: dict[tuple[str, str], Row], many: int = 3) -> None:
        self.parent = Parent(many)
        self.answers = answers
        self.asked: list[tuple[int, str, str]] = []
        self.outcomes: Counter[str] = Counter()
        self.rows = rows
        self.apis = {number: self._api(number) for number in range(many)}
        for number, colleagues in self.parent.workers.items():
            colleagues.answers[worker_request.NAME] = partial(self._perform, number)

    def _api(self, number: int) -> FastAPI:
        api = FastAPI()

        async def thing(request: Request) -> Response:
            self.asked.append((number, request.method, request.url.path))
            if number not in self.answers:
                await asyncio.Event().wait()
            status, data = self.answers[number]
            kind = problems.MEDIA_TYPE if status >= 300 else "application/json"
            return Response(b"" if data is None else orjson.dumps(data), status, media_type=kind)

        for path in (PATH, "/v1/holders"):
            api.add_api_route(path, thing, methods=["GET", "POST"])
        api.state.routes = [route for route in api.routes if isinstance(route, APIRoute)]
        return api

    async def _perform(self, number: int, content: bytes, tell: Tell) -> None:
        await worker_request.perform(self.apis[number], Question.decode(content), tell)

    async def ask(self, method: str = "GET", query: bytes = b"", worker: int = 0) -> tuple[int, Any]:
        """What a worker's port answers. Raises Refused."""
        together = Together(self.apis[worker], self.parent.workers[worker], self.outcomes, self.rows)
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = Question(method, PATH, query).scope
        await together(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], orjson.loads(body) if body else None

    async def refused(self, method: str = "GET", query: bytes = b"") -> Refused:
        with pytest.raises(Refused) as found:
            await self.ask(method, query)
        return found.value


def problem(status: int, detail: str) -> tuple[int, Any]:
    return status, orjson.loads(problems.content(status, detail, PATH))


def fleet(answers: dict[int, tuple[int, Any]], row: Row = SUM) -> Fleet:
    return Fleet(answers, {("GET", PATH): row, ("POST", PATH): row})


# The table.


async def test_every_route_says_how_several_workers_serve_it() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    there = {(method, route.path) for route in routes for method in route.methods or () if route.path.startswith("/v1")}
    assert there == ROWS.keys()
    assert len(there) > 30


# What becomes of several answers.


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_answers_are_joined_and_told_apart_where_they_differ(method: str) -> None:
    alike = fleet({number: (200, {"count": 2}) for number in range(3)})
    assert await alike.ask(method) == (200, {"count": 6})
    assert sorted(alike.asked) == [(number, method, PATH) for number in range(3)]
    assert alike.outcomes == {"answered": 2}
    unlike = fleet({0: (200, {"count": 2}), 1: (200, {"count": 3}), 2: (200, {"count": 2})})
    workers = [{"worker": 0, "count": 2}, {"worker": 1, "count": 3}, {"worker": 2, "count": 2}]
    assert await unlike.ask(method) == (200, {"count": 7, "workers": workers})
    assert await unlike.ask(method, b"worker=1") == (200, {"count": 3})


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_one_has_not_another_may(method: str) -> None:
    some = fleet({0: problem(404, "no such thing"), 1: (200, {"count": 1}), 2: problem(404, "no such thing")})
    assert await some.ask(method) == (200, {"count": 1})
    none = fleet({number: problem(404, "no such thing") for number in range(3)})
    refusal = await none.refused(method)
    assert (refusal.status, refusal.detail, refusal.more) == (404, "no such thing", {})


async def test_a_read_goes_on_without_whom_it_must() -> None:
    failing = fleet({0: (200, {"count": 1}), 1: problem(503, "not now"), 2: (200, {"count": 1})})
    assert await failing.ask() == (200, {"count": 2, "missing_workers": [1]})
    dead = fleet({number: (200, {"count": 1}) for number in range(3)})
    dead.parent.bury(2)
    assert await dead.ask() == (200, {"count": 2, "missing_workers": [2]})
    assert dead.outcomes == {"answered": 1, "gone": 1}
    refusal = await dead.refused(query=b"worker=2")
    assert (refusal.status, refusal.detail, refusal.more) == (503, "worker 2 does not answer", {"missing_workers": [2]})


async def test_a_write_that_some_did_not_do_has_failed_and_says_who_did_it() -> None:
    failing = fleet({0: (200, {"count": 1}), 1: problem(409, "not valid"), 2: (200, {"count": 1})})
    refusal = await failing.refused("POST")
    assert (refusal.status, refusal.detail) == (409, "not valid")
    assert refusal.more == {
        "workers": [
            {"worker": 0, "status": 200},
            {"worker": 1, "status": 409, "detail": "not valid"},
            {"worker": 2, "status": 200},
        ]
    }
    dead = fleet({number: (200, {"count": 1}) for number in range(3)})
    dead.parent.bury(1)
    refusal = await dead.refused("POST")
    assert (refusal.status, refusal.detail) == (503, "not every worker was reached: 1 did not answer")
    assert refusal.more == {
        "missing_workers": [1],
        "workers": [{"worker": 0, "status": 200}, {"worker": 2, "status": 200}],
    }


async def test_a_worker_that_is_silent_is_named_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    row = Everyone(SUM.join, patience=0.5)
    silent = Fleet({0: (200, {"count": 1})}, {("GET", PATH): row}, many=2)
    together = Together(silent.apis[0], silent.parent.workers[0], silent.outcomes, silent.rows)
    question = Question("GET", PATH)
    assert await together.ask(1, question, 0.01) is None
    assert await together.ask(1, question, 0.01) is None
    assert caplog.text.count("worker 1 does not answer what the admin API asks it (late)") == 1
    silent.answers[1] = (200, {"count": 1})
    assert await together.ask(1, question, 30) is not None
    del silent.answers[1]
    assert await together.ask(1, question, 0.01) is None
    assert caplog.text.count("does not answer") == 2
    assert silent.outcomes == {"late": 3, "answered": 1}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        (b"worker=3", 404),
        (b"worker=" + b"1" * 5000, 404),
        (b"worker=", 422),
        (b"worker=-1", 422),
        (b"worker=1e0", 422),
        (b"worker=%D9%A1", 422),
    ],
)
async def test_a_worker_that_there_is_not(query: bytes, status: int) -> None:
    assert (await fleet({}).refused(query=query)).status == status


# Which one does it.


async def test_what_is_the_same_everywhere_one_answers() -> None:
    same = fleet({number: (200, {"count": number}) for number in range(3)}, Anyone())
    assert await same.ask(worker=2) == (200, {"count": 2})
    assert await same.ask(query=b"worker=1") == (200, {"count": 1})
    assert len(same.asked) == 2


async def test_the_one_that_has_it_does_it_once() -> None:
    row = Holder("/v1/holders", lambda data: bool(data["count"]), 30)
    some = fleet({0: (200, {"count": 0}), 1: problem(404, "no"), 2: (200, {"count": 7})}, row)
    assert await some.ask("POST") == (200, {"count": 7})
    assert [asked for asked in some.asked if asked[1] == "POST"] == [(2, "POST", PATH)]
    # Nobody has it, as far as is known: then this one knows best why not.
    none = fleet({number: (200, {"count": 0}) for number in range(3)}, row)
    await none.ask("POST", worker=1)
    assert [asked for asked in none.asked if asked[1] == "POST"] == [(1, "POST", PATH)]


async def test_an_answer_without_content_stays_one() -> None:
    assert await fleet({0: (204, None)}, Anyone()).ask("POST") == (204, None)


# Questions.


async def test_a_question_is_the_same_on_the_other_side() -> None:
    question = Question("PUT", "/v1/clients/a\nb ü", b"a=%20&b=\xff", b"application/json", b'{"a":\n1}', ("ids",))
    assert Question.decode(question.encode()) == question


async def test_an_api_that_fails_says_so_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def failing(*_: Any) -> None:
        raise RuntimeError("a mistake")

    reply = await worker_request.performed(failing, Question("GET", PATH), 0)
    assert (reply.status, reply.body) == (500, b"")
    assert "a mistake" in caplog.text


# The tap.


class Watched:
    """Workers whose taps tell what is put into their queues; None ends one in good order."""

    def __init__(self) -> None:
        self.queues: list[asyncio.Queue[bytes | None]] = [asyncio.Queue() for _ in range(2)]
        self.status = [200, 200]
        self.fleet = Fleet({}, {("GET", "/v1/tap"): tapped}, many=2)
        for number, api in self.fleet.apis.items():
            api.add_api_route("/v1/tap", partial(self._tap, number), methods=["GET"])
            api.state.routes = [route for route in api.routes if isinstance(route, APIRoute)]
        self.sent: asyncio.Queue[bytes] = asyncio.Queue()
        self.began: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()

    async def _tap(self, number: int) -> Response:
        return StreamingResponse(self._events(number), self.status[number], media_type="text/event-stream")

    async def _events(self, number: int) -> AsyncIterator[bytes]:
        yield b": watching\n\n"
        while (event := await self.queues[number].get()) is not None:
            yield event

    async def watch(self) -> None:
        """Be told what the first worker's port tells, until all has ended, or `gone` is set."""
        together = Together(
            self.fleet.apis[0], self.fleet.parent.workers[0], self.fleet.outcomes, {("GET", "/v1/tap"): tapped}
        )
        given = False

        async def receive() -> Message:
            nonlocal given
            if given:
                await self.gone.wait()
                return {"type": "http.disconnect"}
            given = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.began.set_result(message["status"])
            elif message["body"]:
                self.sent.put_nowait(message["body"])

        async with asyncio.timeout(30):
            await together(Question("GET", "/v1/tap").scope, receive, send)

    async def told(self) -> bytes:
        async with asyncio.timeout(30):
            return await self.sent.get()


REQUEST = b'event: request\ndata: {"topic":"t"}\n\n'


async def test_streams_are_told_as_one_and_end_with_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long this process is kept from going on.
    monkeypatch.setattr(merged_tap, "_PAUSE", 30.0)
    watched = Watched()
    watching = asyncio.ensure_future(watched.watch())
    assert await watched.told() == b": watching\n\n"
    assert await watched.began == 200
    for number in (1, 0):
        watched.queues[number].put_nowait(REQUEST)
        assert await watched.told() == b'event: request\ndata: {"worker":%d,"topic":"t"}\n\n' % number
    # Signs of life of one are enough.
    watched.queues[1].put_nowait(b": still here\n\n")
    watched.queues[1].put_nowait(None)
    watched.queues[0].put_nowait(None)
    await watching
    assert watched.sent.empty()
    assert watched.fleet.parent.workers[1]._asked == {}


async def test_a_stream_that_ends_alone_is_missing_until_it_has_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_tap, "_PAUSE", 0.01)
    watched = Watched()
    watching = asyncio.ensure_future(watched.watch())
    assert await watched.told() == b": watching\n\n"
    watched.queues[1].put_nowait(None)
    assert await watched.told() == b'event: missing\ndata: {"worker":1}\n\n'
    assert await watched.told() == b'event: joined\ndata: {"worker":1}\n\n'
    watched.queues[1].put_nowait(REQUEST)
    assert b'"worker":1,' in await watched.told()
    watched.fleet.parent.bury(1)
    assert await watched.told() == b'event: missing\ndata: {"worker":1}\n\n'
    watched.gone.set()
    await watching


async def test_whoever_leaves_ends_all_streams() -> None:
    watched = Watched()
    watching = asyncio.ensure_future(watched.watch())
    watched.queues[1].put_nowait(REQUEST)
    assert {await watched.told(), await watched.told()} >= {b": watching\n\n"}
    watched.gone.set()
    await watching
    async with asyncio.timeout(30):
        while watched.fleet.parent.workers[1]._asked:
            await asyncio.sleep(0)


async def test_a_tap_that_is_refused_is_a_problem_and_no_stream() -> None:
    watched = Watched()
    watched.status[0] = 429
    watched.queues[0].put_nowait(None)
    with pytest.raises(Refused) as found:
        await watched.watch()
    assert found.value.status == 429
    assert not watched.began.done()
