"""Super users are created, changed and deleted by super users only, whatever proves the sender."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.app import App
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.signature import Credentials
from tests.cluster.client import Client as BrokerClient
from tests.ports import free_port
from tests.proxy.auth.replica import replica
from tests.proxy.auth.users import ALICE, OWN_FILE, ROOT, signed, write
from tests.proxy.messages import request
from tests.proxy.replica import Client

pytestmark = pytest.mark.anyio

_ADMIN = {"super_user": "admin", "super_secret": "admin-secret"}
_MANAGER = """
[[users.alice-1.policies]]
resources = ["Cluster:*"]
actions = ["Create", "Update", "Delete"]
"""
_CREATE, _UPDATE, _DELETE = (
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
    RequestCode.AUTH_DELETE_USER,
)
_REFUSED: tuple[tuple[RequestCode, str, Any], ...] = (
    (_CREATE, "boss", {"password": "x", "userType": "Super"}),
    (_CREATE, "boss", {"password": "x", "USERTYPE": " SUPER "}),
    (_CREATE, "boss", {"password": "x", "user_type": "super"}),
    # To Java, this is "Super" in another case.
    (_CREATE, "boss", {"password": "x", "userType": "\u017fuper"}),
    (_UPDATE, "bert", {"userType": "Super"}),
    (_UPDATE, "admin", {"password": "x"}),
    (_UPDATE, " admin", {"userStatus": "disable"}),
    (_DELETE, "admin", {}),
)
_PERMITTED: tuple[tuple[RequestCode, str, Any], ...] = (
    (_CREATE, "bert", {"password": "super"}),
    (_UPDATE, "bert", {"userStatus": "disable"}),
    (_DELETE, "bert", {}),
)


def change(code: RequestCode, name: str, body: Any, by: Credentials) -> RemotingCommand:
    return signed(request(code, orjson.dumps(body), username=name), by)


def supers(app: App) -> dict[str, str]:
    broker = app._node.backend.broker  # type: ignore[union-attr]
    return {user.username: user.password for user in broker.users if user.user_type == "Super"}


async def test_by_signature(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    embedded = {"directory": tmp_path / "data", "listen": f"127.0.0.1:{free_port()}", **_ADMIN}
    async with replica(tmp_path, embedded=embedded, auth={"users": _managers(tmp_path)}) as app:
        client = await Client.connect(app)
        async with BrokerClient(str(embedded["listen"])) as direct:

            async def at_broker(command: RemotingCommand) -> RemotingCommand:
                return await direct.ask(command.code, dict(command.fields), command.body)

            for ask in (client.ask, at_broker):
                for code, name, body in (_PERMITTED[0], *_REFUSED, *_PERMITTED[1:]):
                    reply = await ask(change(code, name, body, ALICE))
                    refused = (code, name, body) in _REFUSED
                    expected = ResponseCode.NO_PERMISSION if refused else ResponseCode.SUCCESS
                    assert reply.code == expected, (code, body, reply.remark)
                    assert ("super user" in (reply.remark or "")) == refused
                assert (await ask(signed(request(_CREATE, b"{", username="x"), ALICE))).code != ResponseCode.SUCCESS
                assert supers(app) == {"admin": "admin-secret"}
                for code, body in ((_CREATE, {"password": "x", "userType": "Super"}), (_UPDATE, {"password": "y"})):
                    assert (await ask(change(code, "boss", body, ROOT))).code == ResponseCode.SUCCESS
                assert supers(app) == {"admin": "admin-secret", "boss": "y"}
                assert (await ask(change(_DELETE, "boss", {}, ROOT))).code == ResponseCode.SUCCESS
        await client.close()
    lines = [orjson.loads(record.getMessage()) for record in caplog.records if record.name == "gantry.audit"]
    denied = [line["detail"] for line in lines if line["event"] == "denied"]
    assert len(denied) == 2 * len(_REFUSED)
    assert "the super user admin: not a super user's request" in denied


async def test_readings_of_secrets_are_no_changes_in_the_audit_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    codes = (
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
        _UPDATE,
    )
    async with replica(tmp_path, embedded={"directory": tmp_path / "data", **_ADMIN}) as app:
        client = await Client.connect(app)
        caplog.clear()
        for code in codes:
            reply = await client.ask(signed(request(code, b"{}", username="admin", subject="User:admin"), ROOT))
            assert reply.code == ResponseCode.SUCCESS, reply.remark
        await client.close()
    lines = [orjson.loads(record.getMessage()) for record in caplog.records if record.name == "gantry.audit"]
    assert [(line["event"], line["request"]) for line in lines] == [
        ("read", "AUTH_GET_USER"),
        ("read", "AUTH_LIST_USER"),
        ("changed", "AUTH_UPDATE_USER"),
    ]
    assert {line["detail"] for line in lines} == {"Update on Cluster:*, username admin, subject User:admin"}
    assert "admin-secret" not in caplog.text


def _managers(folder: Path) -> Path:
    return write(folder / "managers.toml", OWN_FILE + _MANAGER)
