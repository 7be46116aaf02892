"""The API conforms to its description, tested with valid and invalid requests by schemathesis."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.proxy.admin.http.replicas import UNIQUE_ID, WRITE, Stage

pytestmark = pytest.mark.anyio

_EXAMPLES = 12
# Seconds; an idle machine needs a fraction of that.
_LONGEST = 200
_CONFIGURATION = """
[[operations]]
include-name = "GET /v1/tap"
# A stream ends only on request.
parameters = {{ "query.seconds" = 0.05 }}

[[operations]]
include-path-regex = "/consumer-groups/"
parameters = {{ "path.group" = "billing" }}

[[operations]]
include-path-regex = "/producer-groups/"
parameters = {{ "path.group" = "shop" }}

[[operations]]
include-path-regex = "/messages/"
parameters = {{ "path.topic" = "{topic}", "path.message_id" = "{message}" }}

[[operations]]
include-path-regex = "/messages"
# Parameters that exclude each other, SQL, and forms of a body that it does not have.
checks = {{ positive_data_acceptance = {{ expected-statuses = ["2xx", "404", "409", "422"] }} }}

[[operations]]
include-path-regex = "/clients/"
parameters = {{ "path.client_id" = "192.0.2.7@4711", "query.group" = "billing" }}
"""


@pytest.mark.timeout(_LONGEST + 20)
async def test_schemathesis_finds_no_violation_of_the_description(served: Stage, tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(_CONFIGURATION.format(topic=served.topic, message=UNIQUE_ID))
    run = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("schemathesis"),
        *("--config-file", str(tmp_path / "schemathesis.toml")),
        *("run", f"{served.replica.app.admin.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {WRITE}"),
        *("--phases", "examples,coverage,fuzzing"),
        *("--checks", "all"),
        *("--max-examples", str(_EXAMPLES), "--no-shrink", "--seed", "1"),
        *("--request-timeout", "20"),
        *("--suppress-health-check", "all", "--generation-database", "none"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_LONGEST):
            output, _ = await run.communicate()
    except TimeoutError:
        run.kill()
        output, _ = await run.communicate()
    assert run.returncode == 0, output.decode()
    described = await served.replica.get("/openapi.json")
    count = sum(len(operations) for operations in described["paths"].values())
    assert f"Operations:       {count} selected / {count} total" in output.decode()
