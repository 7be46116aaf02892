"""Metrics of authentication: decisions, users, failed sources and slowed addresses."""

from pathlib import Path
from typing import Any

import pytest

from proxy.auth import auth_metrics
from proxy.auth.authority import Authority, Forbidden, NotAuthenticated
from remoting.codes import RequestCode
from remoting.signature import Credentials
from tests.proxy.auth.requests import ask, command
from tests.proxy.auth.users import ALICE, BOB, IMPOSTOR, own_source, signed

pytestmark = pytest.mark.anyio


def _values(made: Authority) -> dict[str, dict[tuple[str, ...], Any]]:
    return {family.name: dict(samples) for family, samples in auth_metrics.read(made)}


async def test_decisions_are_counted_by_method_and_result(tmp_path: Path) -> None:
    made = Authority([own_source(tmp_path)])
    denials: list[tuple[Credentials, type[Exception]]] = [(BOB, Forbidden), (IMPOSTOR, NotAuthenticated)]
    ask(made, signed(command(RequestCode.SEND_MESSAGE_V2), ALICE))
    for sender, error in denials:
        with pytest.raises(error):
            ask(made, signed(command(RequestCode.SEND_MESSAGE_V2), sender))
    values = _values(made)
    requests = values["gantry_auth_requests"]
    assert requests.pop(("signature", "allowed")) == 1
    assert sorted(requests.values()) == [1, 1]
    assert values["gantry_auth_users"] == {("users file",): 3}
    assert values["gantry_auth_failing_sources"] == {(): 1}


async def test_a_source_that_cannot_be_loaded_is_one(tmp_path: Path) -> None:
    source = own_source(tmp_path)
    made = Authority([source])
    await made.refresh()
    assert _values(made)["gantry_auth_source_failed"] == {("users file",): 0}
    (tmp_path / "users.toml").write_text("[users")
    await made.refresh()
    assert _values(made)["gantry_auth_source_failed"] == {("users file",): 1}
