"""Security tokens of temporary credentials: official clients send them with each signed request."""

from dataclasses import replace
from pathlib import Path

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.auth.admin_users import AdminUsers
from proxy.auth.passwords import hash_password
from proxy.core.principal import Failure, Method
from remoting.codes import RequestCode
from remoting.signature import SECURITY_TOKEN, Credentials
from tests.proxy.auth.replica import dialled, replica
from tests.proxy.auth.requests import command
from tests.proxy.auth.rpcs import GrpcClient, rpcs
from tests.proxy.auth.users import (
    ALICE,
    BOB,
    FILE_WITH_TOKEN,
    OWN_FILE,
    ROOT,
    TOKEN,
    authority,
    basic,
    grpc_metadata,
    guard,
    signed,
    write,
)
from tests.proxy.fakes import peer
from tests.proxy.replica import Client

pytestmark = pytest.mark.anyio

_SENT: tuple[tuple[str | None, bool], ...] = ((None, False), ("", False), ("token-of-bob", False), (TOKEN, True))


@pytest.mark.parametrize(("token", "accepted"), _SENT)
def test_signatures_of_a_user_with_a_token_need_it(tmp_path: Path, token: str | None, accepted: bool) -> None:
    made = authority(tmp_path, FILE_WITH_TOKEN)
    rpcs_guard = guard(made)
    header = {} if token is None else {"x-mq-session-token": token}
    expected = None if accepted else Failure.WRONG_TOKEN
    for _ in range(2):
        sent = signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), replace(ALICE, security_token=token))
        assert (SECURITY_TOKEN in sent.fields) == (token is not None)
        assert made.of_command(sent, peer()).failure is expected
        assert rpcs_guard._principal({**grpc_metadata(ALICE), **header}, peer()).failure is expected


def test_tokens_of_users_without_one_are_ignored_as_by_the_official_proxy(tmp_path: Path) -> None:
    made = authority(tmp_path, FILE_WITH_TOKEN)
    sent = signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), replace(BOB, security_token="any"))
    assert made.of_command(sent, peer()).failure is None
    assert guard(made)._principal({**grpc_metadata(BOB), "x-mq-session-token": "any"}, peer()).failure is None


@pytest.mark.parametrize("secret", ["secret-of-root", "password-of-root"])
def test_a_user_with_a_token_does_not_log_in_with_the_secret_alone(tmp_path: Path, secret: str) -> None:
    """The password for the admin API is a credential of its own."""
    password = f'password = "{hash_password(secret)}"' if secret == "password-of-root" else ""
    own = f'secret = "{ROOT.secret_key}"'
    made = authority(tmp_path, OWN_FILE.replace(own, f'{own}\nsecurity_token = "{TOKEN}"\n{password}'))
    users, login = AdminUsers(made, guard(made)), basic(Credentials(ROOT.access_key, secret))
    for _ in range(2):
        assert users(login, "192.0.2.1") == ((ROOT.access_key, "write") if password else None)
    assert made.counts == ({} if password else {(Method.PASSWORD, "wrong security token"): 2})


async def test_a_replica_checks_tokens_of_both_protocols(tmp_path: Path) -> None:
    users = write(tmp_path / "tokens.toml", FILE_WITH_TOKEN)
    async with replica(tmp_path, auth={"users": users}) as app, dialled(app) as channel:
        client = await Client.connect(app)
        for token, accepted in _SENT:
            route = signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), replace(ALICE, security_token=token))
            reply = await client.ask(route)
            assert (reply.code == 0) == accepted
            caller = GrpcClient(channel, ALICE)
            if token is not None:
                caller.metadata = (*caller.metadata, ("x-mq-session-token", token))
            status = await caller.call("QueryRoute", rpcs()["QueryRoute"])
            assert (status != Code.UNAUTHORIZED) == accepted
        await client.close()
        assert app.authority is not None
        assert app.authority.counts["signature", "wrong security token"] == 6
