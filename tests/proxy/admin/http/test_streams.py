"""Streams end when their callers may not read them any more."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.admin.http import guard
from proxy.admin.sessions import CSRF_HEADER, IDLE, Sessions
from tests.proxy.admin.http.replicas import READ, Replica, replica
from tests.proxy.auth.users import write
from tests.proxy.fakes import Clock

pytestmark = pytest.mark.anyio

_TOKEN = "a-token-from-the-file"
_INTERVAL = 0.1


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_RECHECK_INTERVAL", _INTERVAL)


@asynccontextmanager
async def guarded(folder: Path, **more: Any) -> AsyncIterator[Replica]:
    """A replica whose API needs a credential, also on this host."""
    async with replica(folder / "data", admin={"local": "none", **more.pop("admin", {})}, **more) as own:
        yield own


async def watched(own: Replica, end: Callable[[], object], **request: Any) -> None:
    """Open the tap, and check that it ends in good order after `end`, and not before."""
    async with own.read.stream("GET", "/v1/tap", **request) as stream:
        assert stream.status_code == 200
        lines = stream.aiter_lines()
        assert await anext(lines) == ": watching"
        await asyncio.sleep(5 * _INTERVAL)
        assert own.app.admin_services.tap.watchers
        done = end()
        if asyncio.iscoroutine(done):
            await done
        async with asyncio.timeout(30):
            assert not [line async for line in lines if line]
    assert not own.app.admin_services.tap.watchers


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_the_tap_ends_without_its_token(tmp_path: Path) -> None:
    tokens = write(tmp_path / "tokens", f"read alice {_TOKEN}\n")
    async with guarded(tmp_path, admin={"tokens": tokens}) as own:
        await watched(own, lambda: write(tokens, "read alice another-token-of-alice\n"), headers=bearer(_TOKEN))
        assert (await own.read.get("/v1/tap", headers=bearer(_TOKEN))).status_code == 401


@pytest.mark.parametrize(("before", "after"), [("secret-of-olga", "newer-secret-of-olga"), ("operator", "normal")])
async def test_the_tap_ends_without_the_secret_or_the_role_of_its_user(tmp_path: Path, before: str, after: str) -> None:
    text = '[users.olga]\nsecret = "secret-of-olga"\nrole = "operator"\n'
    users = write(tmp_path / "users.toml", text)
    auth = {"users": users, "reload_interval": 0.1}
    async with guarded(tmp_path, auth=auth) as own:
        login = httpx.BasicAuth("olga", "secret-of-olga")
        await watched(own, lambda: write(users, text.replace(before, after)), auth=login)


async def test_the_tap_ends_with_its_session(tmp_path: Path) -> None:
    async with guarded(tmp_path) as own:
        login = await own.read.post("/v1/session", json={"token": READ})
        assert login.status_code == 200
        headers = {CSRF_HEADER: login.json()["csrf"]}
        await watched(own, lambda: own.read.delete("/v1/session", headers=headers))


def test_a_stream_does_not_postpone_the_end_of_its_session() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    session_id, session = sessions.open("alice", "Bearer x")
    cookie = {"cookie": f"gantry_session={session_id}"}
    clock.now += IDLE
    assert sessions.find(cookie, use=False) is session
    clock.now += 1
    assert sessions.find(cookie) is None


@pytest.mark.parametrize("code", ["nonsense", "send_message", "", "x" * 300])
async def test_tap_refuses_a_request_code_that_does_not_exist(tmp_path: Path, code: str) -> None:
    async with guarded(tmp_path) as own:
        answer = await own.read.get("/v1/tap", params={"code": code, "seconds": 0.05}, headers=bearer(READ))
        assert answer.status_code == 422
        detail = f"there is no request code or rpc {code[:80]}; `unknown` are all other codes"
        assert answer.json()["faults"] == [{"where": "query code", "detail": detail}]


@pytest.mark.parametrize("code", ["SEND_MESSAGE_V2", "ReceiveMessage", "unknown"])
async def test_tap_accepts_request_codes_rpcs_and_all_others(tmp_path: Path, code: str) -> None:
    async with guarded(tmp_path) as own:
        answer = await own.read.get("/v1/tap", params={"code": code, "seconds": 0.05}, headers=bearer(READ))
        assert answer.text == ": watching\n\n"
