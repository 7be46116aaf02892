"""Requests that name a new topic, group, broker or client each time, with a good client beside them."""

import asyncio
import urllib.request
from pathlib import Path

import orjson
import pytest

from remoting.codes import RequestCode, ResponseCode
from tests.attacks.cases import cases
from tests.attacks.deployments import Deployment
from tests.attacks.good_client import observed, send_fields
from tests.attacks.replicas import Baseline, deployed
from tests.cluster.client import Client, pull_fields, queue_fields, unique
from tests.cluster.servers import HOST, Gantry
from tests.ports import free_port

pytestmark = pytest.mark.anyio

_REQUESTS = 1000
# Requests of the attacker in flight.
_PARALLEL = 50


async def _ask_all(client: Client, requests: list[tuple[int, dict[str, object]]], body: bytes = b"") -> list[int]:
    """Send requests, some at a time; return the response codes."""
    codes: list[int] = []
    for start in range(0, len(requests), _PARALLEL):
        replies = [client.begin(code, fields, body, 60) for code, fields in requests[start : start + _PARALLEL]]
        codes += [(await reply).code for reply in replies]
    return codes


async def test_a_heartbeat_of_5000_groups_creates_few(replica: Gantry) -> None:
    consumers = [
        {"groupName": f"{unique('g')}-{number}", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": []}
        for number in range(5000)
    ]
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        for start in (0, 1000, 2000):
            data = {"clientID": attacker.client_id, "consumerDataSet": consumers[start : start + 1000]}
            await attacker.ask(RequestCode.HEART_BEAT, {}, orjson.dumps(data | {"producerDataSet": []}))
        data = {"clientID": attacker.client_id, "consumerDataSet": consumers, "producerDataSet": []}
        reply = await attacker.ask(RequestCode.HEART_BEAT, {}, orjson.dumps(data))
        assert reply.code == ResponseCode.INVALID_PARAMETER
    observation.check(growth=48)


@pytest.mark.complete
async def test_sends_to_1000_new_topics_create_few(replica: Gantry) -> None:
    """Topics that messages create have a quota for each client."""
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        requests = [
            (int(RequestCode.SEND_MESSAGE_V2), dict[str, object](send_fields(f"spam-{number}")))
            for number in range(_REQUESTS)
        ]
        codes = await _ask_all(attacker, requests, b"x")
    assert codes.count(ResponseCode.SUCCESS) < _REQUESTS / 2
    observation.check(growth=48)


@pytest.mark.parametrize(
    "kind",
    cases(("topics of routes", "brokers", "topics of pulls", "groups"), "topics of routes"),
)
async def test_unknown_names_in_each_request_cost_little(replica: Gantry, kind: str) -> None:
    templates: dict[str, tuple[int, dict[str, object], str]] = {
        "topics of routes": (RequestCode.GET_ROUTEINFO_BY_TOPIC, {}, "topic"),
        "topics of pulls": (RequestCode.PULL_MESSAGE, pull_fields("", "group"), "topic"),
        "brokers": (RequestCode.GET_MAX_OFFSET, queue_fields("orders"), "bname"),
        "groups": (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {}, "consumerGroup"),
    }
    code, fields, varying = templates[kind]
    names = [f"{unique('unknown')}-{number}" for number in range(_REQUESTS)]
    requests: list[tuple[int, dict[str, object]]] = [(int(code), fields | {varying: name}) for name in names]
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        codes = await _ask_all(attacker, requests)
    assert ResponseCode.SUCCESS not in codes
    observation.check(growth=32)


@pytest.mark.complete
async def test_offsets_of_unknown_groups_are_bounded(replica: Gantry) -> None:
    """Commits of 1,000 groups that do not exist, for queues that do not exist."""
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        requests = [
            (
                int(RequestCode.UPDATE_CONSUMER_OFFSET),
                queue_fields("nowhere", 1000 + number, consumerGroup=f"spam-{number}", commitOffset=2**62),
            )
            for number in range(_REQUESTS)
        ]
        await _ask_all(attacker, requests)
    observation.check(growth=32)


@pytest.mark.complete
async def test_names_in_metrics_are_bounded(tmp_path: Path) -> None:
    """2,000 topics, groups, clients, languages and request codes add a bounded number of series to the metrics."""
    port = free_port()
    with deployed(Deployment.EMBEDDED, tmp_path, more=f'[admin]\nlisten = "{HOST}:{port}"\n') as replica:

        def lines() -> int:
            with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as response:
                return int(response.read().count(b"\n"))

        baseline = Baseline(replica.pid)
        async with observed(replica.address, replica.pid, unique("good")) as observation:
            before = await asyncio.to_thread(lines)
            for number in range(20):
                async with Client(replica.address, f"client-{number}", language=f"LANGUAGE-{number}") as attacker:
                    requests: list[tuple[int, dict[str, object]]] = []
                    for name in range(100 * number, 100 * number + 100):
                        fields = pull_fields(f"topic-{name}", f"group-{name}")
                        requests += [(int(RequestCode.PULL_MESSAGE), fields), (1_000_000 + name, {})]
                    await _ask_all(attacker, requests)
            after = await asyncio.to_thread(lines)
        await asyncio.to_thread(baseline.wait_for_release)
    assert after - before < 3000
    observation.check(growth=48)
