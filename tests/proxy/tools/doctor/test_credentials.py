"""The doctor's explanations of denied requests."""

import asyncio
from pathlib import Path

import pytest

from proxy.tools.doctor.diagnosis import diagnose
from proxy.tools.doctor.session import Options
from remoting.signature import Credentials
from tests.proxy.auth.test_replica import replica
from tests.proxy.auth.users import ALICE, BOB, IMPOSTOR

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("credentials", "findings"),
    [
        (None, {"auth.needed"}),
        (IMPOSTOR, {"auth.failed", "grpc.unauthorized"}),
        (BOB, {"auth.accepted", "grpc.answers"}),
        (ALICE, {"auth.accepted", "grpc.answers"}),
    ],
)
async def test_the_doctor_explains_denials(tmp_path: Path, credentials: Credentials | None, findings: set[str]) -> None:
    async with replica(tmp_path) as app, asyncio.timeout(60):
        options = Options(endpoint=app.addresses[0], credentials=credentials)
        found = {finding.code async for finding in diagnose(options)}
    assert findings <= found
    if credentials is not None:
        assert not {"auth.needed", "auth.failed", "auth.accepted", "grpc.unauthorized"} - findings & found
