"""Users and policies over the HTTP API: the users file, the embedded broker, plain_acl.yml."""

import logging
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.auth import admin_users
from tests.proxy.admin.http.replicas import Replica, replica
from tests.proxy.auth.users import PLAIN_ACL, write

pytestmark = pytest.mark.anyio

_ROOT = '[users.root]\nsecret = "secret-of-root"\nrole = "super"\n'
_SECRET = "secret-of-carol"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": False}


def _settings(directory: Path, store: str) -> dict[str, Any]:
    embedded = {"directory": directory / "data"}
    if store == "brokers":
        embedded |= {"super_user": "root", "super_secret": "secret-of-root"}  # type: ignore[dict-item]
        return {"embedded": embedded, "auth": {"brokers": True, "brokers_interval": 0.05, "reload_interval": 0.05}}
    users = write(directory / "users.toml", _ROOT)
    return {"embedded": embedded, "auth": {"users": users, "reload_interval": 0.05}}


async def _decided(on: Replica, **query: str) -> tuple[bool, str]:
    reply = await on.get("/v1/users/carol/decision", **query)
    return reply["allowed"], reply["reason"]


@pytest.mark.parametrize("store", ["file", "brokers"])
async def test_users_and_policies_are_managed(tmp_path: Path, store: str, caplog: pytest.LogCaptureFixture) -> None:
    async with replica(tmp_path, **_settings(tmp_path, store)) as on:
        created = await on.post("/v1/users", {"name": "carol", "secret": _SECRET})
        assert created == {"name": "carol", "source": store, "secret_key": None}
        generated = await on.post("/v1/users", {"name": "dave"})
        assert len(generated["secret_key"]) == 32
        assert (await on.write.post("/v1/users", json={"name": "carol"})).status_code == 409

        policy = {"actions": ["Pub", "Sub"], "resource": "Topic:orders*", "sources": ["10.0.0.0/8"]}
        detail = await on.post("/v1/users/carol/policies", policy)
        assert detail["policies"] == 1
        assert detail["entries"] == [
            {
                "effect": "allow",
                "actions": ["Pub", "Sub"],
                "resources": ["Topic:orders*"],
                "sources": ["10.0.0.0/8"],
                "default": False,
            }
        ]
        users = (await on.get("/v1/users"))["items"]
        assert [(user["name"], user["role"], user["source"]) for user in users] == [
            ("carol", "normal", store),
            ("dave", "normal", store),
            ("root", "super", store),
        ]
        await _in_force(on, "orders-eu")
        assert not (await _decided(on, action="Pub", resource="Topic:orders-eu", address="192.0.2.1"))[0]

        done = await on.write.delete("/v1/users/carol/policies", params={"resource": "Topic:orders*", "action": "Sub"})
        assert done.json()["entries"][0]["actions"] == ["Pub"]
        changed = await on.write.patch("/v1/users/carol", json={"role": "super", "enabled": False})
        assert (changed.json()["role"], changed.json()["enabled"]) == ("super", False)
        assert (await on.write.delete("/v1/users/carol")).status_code == 204
        for missing in (
            await on.write.delete("/v1/users/carol"),
            await on.write.patch("/v1/users/carol", json={"enabled": True}),
            await on.write.post("/v1/users/carol/policies", json=policy),
            await on.read.get("/v1/users/carol"),
        ):
            assert missing.status_code == 404, missing.text
        audit = (await on.get("/v1/audit"))["items"]
        assert ("POST", "/v1/users", {"name": "carol", "secret": "********"}) in [
            (entry["method"], entry["path"], entry["what"]) for entry in audit
        ]
    assert _SECRET not in caplog.text
    assert _SECRET not in str(audit)


async def test_the_audit_has_no_secret_of_an_invalid_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gantry.audit")
    secret = "a-Secret-in-a-wrong-place"
    async with replica(tmp_path, **_settings(tmp_path, "file")) as on:
        for body in ({"secretKey": secret}, {"secret": [secret]}, {"secrt": secret}, {"security_token": secret}):
            answer = await on.write.post("/v1/users", params={"secret": secret}, json={"name": "carol", **body})
            assert answer.status_code == 422
        assert (await on.write.post("/v1/user", json={"pw": secret})).status_code == 404
        assert len((await on.get("/v1/audit"))["items"]) == 5
        assert secret not in str(await on.get("/v1/audit"))
    assert caplog.text.count("secretKey") == 1
    assert secret not in caplog.text


async def test_a_changed_file_is_in_force_with_the_answer(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "file")
    settings["auth"]["reload_interval"] = 3600
    async with replica(tmp_path, **settings) as on:
        await on.post("/v1/users", {"name": "carol"})
        await on.post("/v1/users/carol/policies", {"actions": ["Pub"], "resource": "Topic:orders"})
        question = {"action": "Pub", "resource": "Topic:orders", "address": "10.1.2.3"}
        assert (await _decided(on, **question))[0]
        assert (await on.write.delete("/v1/users/carol")).status_code == 204
        assert await _decided(on, **question) == (False, "no user carol in users file")


async def test_a_wrong_password_is_not_called_a_token(tmp_path: Path) -> None:
    async with replica(tmp_path, **_settings(tmp_path, "file")) as on:
        header = {"Authorization": "Basic " + b64encode(b"root:wrong").decode()}
        for answer in (
            await on.read.get("/v1/users", headers=header),
            await on.read.post("/v1/session", json={"user": "root", "token": "wrong"}),
        ):
            assert (answer.status_code, answer.json()["detail"]) == (401, "the user or the password is wrong")


async def test_users_of_the_file_expire(tmp_path: Path) -> None:
    async with replica(tmp_path, **_settings(tmp_path, "file")) as on:
        await on.post("/v1/users", {"name": "carol", "expires": "2099-01-31T12:00:00+02:00"})
        listed = {user["name"]: user["expires"] for user in (await on.get("/v1/users"))["items"]}
        assert listed == {"carol": "2099-01-31T10:00:00.000000Z", "root": None}
        past = (await on.write.patch("/v1/users/carol", json={"expires": "2020-01-31T12:00:00Z"})).json()
        assert (past["enabled"], past["expires"]) == (False, "2020-01-31T12:00:00.000000Z")
        never = (await on.write.patch("/v1/users/carol", json={"expires": ""})).json()
        assert (never["enabled"], never["expires"]) == (True, None)
        for text in ("2030-01-31T12:00:00", "tomorrow"):
            for method, path, body in (
                ("POST", "/v1/users", {"name": "dave", "expires": text}),
                ("PATCH", "/v1/users/carol", {"expires": text}),
            ):
                assert (await on.write.request(method, path, json=body)).status_code == 422, (method, text)


async def test_users_of_brokers_do_not_expire(tmp_path: Path) -> None:
    async with replica(tmp_path, **_settings(tmp_path, "brokers")) as on:
        order = {"name": "carol", "expires": "2099-01-31T12:00:00Z"}
        refused = await on.write.post("/v1/users", json=order)
        assert refused.status_code == 409
        assert "expire" in refused.text


async def _in_force(on: Replica, topic: str) -> None:
    for _ in range(200):
        allowed, reason = await _decided(on, action="Pub", resource=f"Topic:{topic}", address="10.1.2.3")
        if allowed:
            assert reason.startswith("allow Pub,Sub on Topic:orders* from 10.0.0.0/8")
            return
    raise AssertionError(reason)


async def test_roles_of_the_users_themselves_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # All three log in for the first time within a second.
    monkeypatch.setattr(admin_users, "_VERIFICATIONS_PER_SECOND", 3)
    users = _ROOT + '[users.watch]\nsecret = "secret-of-watch"\nrole = "operator"\n[users.alice]\nsecret = "secret"\n'
    file = write(tmp_path / "users.toml", users)
    async with replica(tmp_path / "data", auth={"users": file}) as on:
        expected = {"root": (200, 200), "watch": (200, 403), "alice": (403, 403)}
        for name, statuses in expected.items():
            secret = "secret" if name == "alice" else f"secret-of-{name}"
            header = {"Authorization": "Basic " + b64encode(f"{name}:{secret}".encode()).decode()}
            async with httpx.AsyncClient(base_url=on.app.admin.url or "", headers=header) as client:
                read = await client.get("/v1/users")
                created = await client.post("/v1/users", json={"name": f"made-by-{name}"})
                assert (read.status_code, created.status_code) == statuses, name
        assert (await on.read.post("/v1/users", json={"name": "nobody"})).status_code == 401


async def test_source_without_changes_is_listed_and_the_store_must_be_named(tmp_path: Path) -> None:
    auth = {
        "users": write(tmp_path / "users.toml", _ROOT),
        "plain_acl": write(tmp_path / "plain_acl.yml", PLAIN_ACL),
        "brokers": True,
    }
    embedded = {"directory": tmp_path / "data", "super_user": "boss", "super_secret": "secret-of-boss"}
    async with replica(tmp_path, embedded=embedded, auth=auth) as on:
        users = {user["name"]: user["source"] for user in (await on.get("/v1/users"))["items"]}
        assert users["root"] == "file"
        assert users["boss"] == "brokers"
        assert users["root-01"] == "plain_acl"
        assert (await on.get("/v1/users/alice-1"))["entries"]
        ambiguous = await on.write.post("/v1/users", json={"name": "carol"})
        assert (ambiguous.status_code, "name one" in ambiguous.json()["detail"]) == (422, True)
        named = await on.write.post("/v1/users", params={"store": "brokers"}, json={"name": "carol"})
        assert named.json()["source"] == "brokers"
        assert [user["name"] for user in (await on.get("/v1/users", store="file"))["items"]] == ["root"]


async def test_without_authentication_there_is_nothing_to_change(tmp_path: Path) -> None:
    async with replica(tmp_path) as on:
        assert await on.get("/v1/users") == {"items": []}
        for refused in (
            await on.write.post("/v1/users", json={"name": "carol"}),
            await on.write.post("/v1/users", params={"store": "file"}, json={"name": "carol"}),
            await on.read.get("/v1/users/carol/decision", params={"action": "Pub", "resource": "Topic:x"}),
        ):
            assert refused.status_code == 409, refused.text


async def test_requests_that_are_not_valid_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "users.toml", _ROOT)
    async with replica(tmp_path / "data", auth={"users": file}) as on:
        for path, body in (
            ("/v1/users", {"name": "a b"}),
            ("/v1/users", {"name": "carol", "secret": "short"}),
            ("/v1/users", {"name": "carol", "role": "king"}),
            ("/v1/users", {"name": "carol", "color": "red"}),
        ):
            assert (await on.write.post(path, json=body)).status_code == 422, body
        for policy in ({"actions": ["Fly"], "resource": "Topic:x"}, {"actions": ["Pub"], "resource": "x"}):
            refused = await on.write.post("/v1/users/root/policies", json=policy)
            assert refused.status_code == 409, refused.text
        query = {"action": "Pub", "resource": "Topic:x*"}
        assert (await on.read.get("/v1/users/root/decision", params=query)).status_code == 422
