"""Sessions of browsers: login, role, CSRF token, logout, withdrawn tokens, audit."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from proxy import app
from proxy.admin.sessions import COOKIE, CSRF_HEADER, IDLE, MAX_AGE, Sessions
from proxy.auth.admin_users import AdminUsers
from proxy.auth.passwords import hash_password
from tests.proxy.admin.http.replicas import READ, WRITE, Replica, replica

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Replica]:
    async with replica(tmp_path / "store", admin={"local": "none"}) as served:
        yield served


async def log_in(browser: httpx.AsyncClient, token: str) -> httpx.Response:
    return await browser.post("/v1/session", json={"token": token})


async def test_session_has_the_role_of_its_token_and_the_cookie_is_strict(served: Replica) -> None:
    browser = served.read
    assert (await browser.get("/v1/session")).json() == {
        "name": "local",
        "role": "none",
        "session": False,
        "csrf": None,
    }
    assert (await browser.get("/v1/clients")).status_code == 401
    answer = await log_in(browser, READ)
    assert (answer.status_code, answer.json()["role"]) == (200, "read")
    cookie = answer.headers["set-cookie"]
    assert all(part in cookie for part in (f"{COOKIE}=", "HttpOnly", "SameSite=Strict", "Path=/"))
    assert READ not in cookie
    assert (await browser.get("/v1/clients")).status_code == 200
    csrf = answer.json()["csrf"]
    assert (await browser.post("/v1/drain", headers={CSRF_HEADER: csrf})).status_code == 403


async def test_write_needs_the_token_of_its_session(served: Replica) -> None:
    browser = served.read
    csrf = (await log_in(browser, WRITE)).json()["csrf"]
    assert (await browser.get("/v1/session")).json()["csrf"] == csrf
    for headers in ({}, {CSRF_HEADER: "wrong"}, {CSRF_HEADER: csrf, "Origin": "http://evil.example"}):
        assert (await browser.post("/v1/drain", headers=headers)).status_code == 403
    assert (await browser.post("/v1/drain", headers={CSRF_HEADER: csrf})).status_code == 200
    assert (await browser.post("/v1/resume", headers={CSRF_HEADER: csrf})).status_code == 200
    entries = (await browser.get("/v1/audit")).json()["items"]
    assert [(entry["caller"], entry["path"], entry["status"]) for entry in entries[:2]] == [
        ("write_token", "/v1/resume", 200),
        ("write_token", "/v1/drain", 200),
    ]
    # The token is in no entry.
    assert WRITE not in (await browser.get("/v1/audit")).text


async def test_logout_ends_the_session(served: Replica) -> None:
    browser = served.read
    csrf = (await log_in(browser, WRITE)).json()["csrf"]
    cookie = browser.cookies[COOKIE]
    assert (await browser.delete("/v1/session", headers={CSRF_HEADER: csrf})).status_code == 204
    assert (await browser.get("/v1/clients")).status_code == 401
    assert (await browser.get("/v1/clients", headers={"cookie": f"{COOKIE}={cookie}"})).status_code == 401


async def test_unknown_token_opens_no_session(served: Replica) -> None:
    answer = await log_in(served.read, "a-token-of-nobody-at-all")
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
    assert served.app.admin.gatekeeping.refusals["credentials"] == 1


async def test_session_of_a_withdrawn_token_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.admin.access._CHECK_INTERVAL", 0.0)
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_text("write ops a-token-that-is-withdrawn\n")
    async with replica(tmp_path / "store", admin={"local": "none", "tokens": tokens}) as served:
        assert (await log_in(served.read, "a-token-that-is-withdrawn")).json()["name"] == "ops"
        assert (await served.read.get("/v1/clients")).status_code == 200
        tokens.write_text("# nobody\n")
        assert (await served.read.get("/v1/clients")).status_code == 401


@pytest.mark.parametrize(("step", "steps"), [(IDLE + 1, 1), (IDLE / 2, int(2 * MAX_AGE / IDLE) + 1)])
def test_session_ends_when_it_is_idle_or_old(step: float, steps: int) -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    session_id, _ = sessions.open("a", "Bearer a")
    headers = {"cookie": f"other=1; {COOKIE}={session_id}"}
    assert sessions.find(headers) is not None
    for _ in range(steps):
        now[0] += step
        found = sessions.find(headers)
    assert found is None


def test_the_oldest_session_ends_if_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.admin.sessions._MAX_SESSIONS", 2)
    sessions = Sessions()
    ids = [sessions.open("a", "Bearer a")[0] for _ in range(3)]
    assert [sessions.find({"cookie": f"{COOKIE}={one}"}) is not None for one in ids] == [False, True, True]


def test_many_sessions_of_one_caller_end_only_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.admin.sessions._MAX_SESSIONS", 6)
    monkeypatch.setattr("proxy.admin.sessions._MAX_OWN_SESSIONS", 4)
    sessions = Sessions()

    def is_open(session_id: str) -> bool:
        return sessions.find({"cookie": f"{COOKIE}={session_id}"}) is not None

    first = sessions.open("ops", "Bearer ops")[0]
    ids = [sessions.open("reader", "Bearer reader")[0] for _ in range(10)]
    assert [is_open(one) for one in (first, *ids)] == [True] + [False] * 6 + [True] * 4
    # Over all callers: the one with the most sessions loses its oldest.
    others = [sessions.open(name, "Bearer x")[0] for name in ("b", "c")]
    assert [is_open(one) for one in (first, *ids[6:], *others)] == [True, False, True, True, True, True, True]


@pytest.mark.parametrize("name", ["local", "remote"])
async def test_a_user_may_have_the_name_of_callers_without_a_credential(tmp_path: Path, name: str) -> None:
    users = tmp_path / "users.toml"
    users.write_text(f'[users.{name}]\nsecret = "a-secret-of-{name}"\nrole = "operator"\n')
    users.chmod(0o600)
    async with replica(tmp_path / "store", admin={"local": "none"}, auth={"users": users}) as served:
        answer = await served.read.post("/v1/session", json={"user": name, "token": f"a-secret-of-{name}"})
        assert (answer.status_code, answer.json()["role"]) == (200, "read")
        csrf = {CSRF_HEADER: answer.json()["csrf"]}
        assert (await served.read.post("/v1/drain", headers=csrf)).status_code == 403


async def test_user_without_a_role_is_refused_and_the_session_stays(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text('[users.norm]\nsecret = "a-secret-of-norm"\n')
    users.chmod(0o600)
    async with replica(tmp_path / "store", auth={"users": users}) as served:
        csrf = {CSRF_HEADER: (await served.read.post("/v1/session", json={"token": WRITE})).json()["csrf"]}
        login = {"user": "norm", "token": "a-secret-of-norm"}
        answer = await served.read.post("/v1/session", json=login, headers=csrf)
        assert (answer.status_code, "norm has no role here" in answer.json()["detail"]) == (403, True)
        assert "set-cookie" not in answer.headers
        assert (await served.get("/v1/session"))["role"] == "write"


async def test_a_login_over_the_limit_of_verifications_is_repeated_and_keeps_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All are in one second, which on a slow machine is over after a few verifications.
    monkeypatch.setattr(app, "AdminUsers", partial(AdminUsers, clock=lambda: 0.0))
    users = tmp_path / "users.toml"
    users.write_text(f'[users.boss]\npassword = "{hash_password("password-of-boss")}"\nrole = "super"\n')
    users.chmod(0o600)
    async with replica(tmp_path / "store", admin={"local": "none"}, auth={"users": users}) as served:
        login = {"user": "boss", "token": "password-of-boss"}
        assert (await served.read.post("/v1/session", json=login)).status_code == 200
        guesses = [await served.write.post("/v1/session", json={**login, "token": str(n)}) for n in range(12)]
        assert {answer.status_code for answer in guesses} == {401, 429}
        refused = next(answer for answer in guesses if answer.status_code == 429)
        assert refused.headers["retry-after"] == "1"
        assert served.app.admin.gatekeeping.refusals["logins"] > 0
        assert (await served.read.get("/v1/clients")).status_code == 200
