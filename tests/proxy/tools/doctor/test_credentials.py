"""The doctor's explanations of denied requests."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.tools.doctor.diagnosis import diagnose
from proxy.tools.doctor.session import Options
from remoting.signature import Credentials
from tests.proxy.auth.replica import replica
from tests.proxy.auth.users import ALICE, BOB, FILE_WITH_TOKEN, IMPOSTOR, TOKEN, write

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("credentials", "findings"),
    [
        (None, {"auth.needed", "route.refused"}),
        (IMPOSTOR, {"auth.failed", "grpc.unauthorized"}),
        (BOB, {"auth.accepted", "grpc.answers"}),
        (ALICE, {"auth.failed", "grpc.unauthorized"}),
        (replace(ALICE, security_token=TOKEN), {"auth.accepted", "grpc.answers"}),
    ],
)
async def test_the_doctor_explains_denials(tmp_path: Path, credentials: Credentials | None, findings: set[str]) -> None:
    users = write(tmp_path / "tokens.toml", FILE_WITH_TOKEN)
    async with replica(tmp_path, auth={"users": users}) as app, asyncio.timeout(60):
        options = Options(endpoint=app.addresses[0], credentials=credentials)
        found = {finding.code async for finding in diagnose(options)}
    assert findings <= found
    assert ("route.refused" in found) == bool({"auth.needed", "auth.failed"} & found)
    if credentials is not None:
        assert not {"auth.needed", "auth.failed", "auth.accepted", "grpc.unauthorized"} - findings & found


async def test_the_doctor_names_the_user_of_requests_without_a_signature(tmp_path: Path) -> None:
    async with replica(tmp_path, auth={"anonymous": "allow"}) as app, asyncio.timeout(60):
        found = {finding.code: finding async for finding in diagnose(Options(endpoint=app.addresses[0]))}
    assert found["auth.known"].text == "requests without a signature are those of the user anonymous"
    assert "auth.needed" not in found


async def test_the_doctor_names_the_grant_of_a_missing_permission(tmp_path: Path) -> None:
    async with replica(tmp_path) as app, asyncio.timeout(60):
        for user, topic, group, code, grant in (
            (BOB, "orders", None, "topic.forbidden", "gantry acl grant bob-0001 Pub,Sub Topic:orders"),
            (ALICE, "orders", "secret", "group.forbidden", "gantry acl grant alice-1 Sub Group:secret"),
        ):
            options = Options(endpoint=app.addresses[0], credentials=user, topic=topic, group=group)
            found = [finding async for finding in diagnose(options)]
            [denied] = [finding for finding in found if finding.code == code]
            assert grant in denied.remedy
            assert [item.code for item in found].count("route.denied") == (2 if user is BOB else 0)
