"""The walk of an operator: "consumer group X is behind, why?", from the live page alone, before a real cluster."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass

import httpx
import orjson
import pytest
from playwright.async_api import Page, expect

from protos.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from tests.cluster.backends import Backend
from tests.cluster.client import Client, create_topic, queue_fields, unique, wait_until
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.reports import figure
from tests.cluster.servers import HOST, Cluster, Gantry
from tests.grpc_gateway.messages import consumer_settings
from tests.ports import free_port
from tests.proxy.admin.live.browser import browsing, log_in

pytestmark = [
    pytest.mark.backends(Backend.CLUSTER, Backend.SOCKET, reason="three replicas need a broker of its own process"),
    pytest.mark.anyio,
    pytest.mark.external,
    pytest.mark.slow,
    pytest.mark.timeout(400, func_only=True),
]

_TOKEN = "a-token-for-operators"
_REPLICAS = 3
_QUEUES = 4
# Messages in each queue; and dead letters.
_MESSAGES, _DEAD = 10, 3
# Seconds that the walk may take.
_LIMIT = 120.0
_HEALTHY, _FAILING = "10.0.0.1@100", "10.0.0.2@200"


@pytest.fixture(scope="module")
def replicas(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Gantry, str]]]:
    """Three replicas that know each other, with the addresses of their pages."""
    ports = [free_port() for _ in range(_REPLICAS)]
    peers = ", ".join(f'"{HOST}:{port}"' for port in ports)
    with ExitStack() as stack:
        started = []
        for number, port in enumerate(ports):
            config = (
                f'replica = "gantry-{number}"\n[admin]\nlisten = "{HOST}:{port}"\nwrite_token = "{_TOKEN}"\n'
                f'peers = [{peers}]\npeer_token = "a-token-of-replicas"\nsurvey_interval = 2\n'
            )
            gantry = stack.enter_context(Gantry(tmp_path_factory.mktemp("walk"), cluster.namesrv, config))
            started.append((gantry, f"http://{HOST}:{port}"))
        yield started


@dataclass(frozen=True, slots=True)
class Incident:
    """A group with a member that fails."""

    group: str
    topic: str


@pytest.fixture
async def incident(cluster: Cluster, replicas: list[tuple[Gantry, str]]) -> AsyncIterator[Incident]:
    """A remoting group with a healthy member at the first replica and a failing one at the second, and a gRPC group at
    the third, which consumes."""
    topic, group, grpc_group = await create_topic(cluster.broker, "walk", _QUEUES), unique("behind"), unique("fine")
    async with AsyncExitStack() as stack:
        healthy = await stack.enter_async_context(Client(replicas[0][0].address, _HEALTHY))
        failing = await stack.enter_async_context(Client(replicas[1][0].address, _FAILING))
        for client, queues, failed in ((healthy, (0, 1), 0), (failing, (2, 3), 57)):
            client.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = _running_info(topic, queues, failed)
            await client.heartbeat({group: [topic]})
        for queue in range(_QUEUES):
            for number in range(_MESSAGES):
                text = f"{queue:016X}{number:016X}"
                await healthy.send(topic, b'{"order": 17}', {"UNIQ_KEY": text, "KEYS": "order-17"}, queue=queue)
        for queue, offset in ((0, _MESSAGES), (1, _MESSAGES), (2, 0), (3, 0)):
            fields = {**queue_fields(topic, queue, consumerGroup=group), "commitOffset": offset}
            await healthy.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        for message in (await failing.pull(topic, group, queue=2))[:_DEAD]:
            fields = {"offset": message.commit_log_offset, "group": group, "delayLevel": -1, "originTopic": topic}
            await failing.get(RequestCode.CONSUMER_SEND_MSG_BACK, failing.named(fields))
        grpc = await stack.enter_async_context(Consumer(replicas[2][0].address, grpc_group, topic, "grpc@1"))
        telemetry = grpc.stub.Telemetry(metadata=grpc.metadata)
        stack.callback(telemetry.cancel)
        await telemetry.write(TelemetryCommand(settings=consumer_settings(grpc_group, [topic])))
        await _wait_for_survey(replicas[0][1], group)
        yield Incident(group, topic)


def _running_info(topic: str, queues: tuple[int, ...], failed: int) -> Callable[[RemotingCommand], RemotingCommand]:
    """Return the answer of a client that consumes these queues and has failed on so many messages in the last hour."""
    status = {"consumeRT": 4.0, "consumeOKTPS": 1.0, "consumeFailedTPS": failed / 60, "consumeFailedMsgs": failed}
    rest = {"properties": {}, "subscriptionSet": [{"topic": topic}], "statusTable": {topic: status}}
    keys = (orjson.dumps({"brokerName": "broker-a", "queueId": queue, "topic": topic}) for queue in queues)
    body = b'{"mqTable":{' + b",".join(key + b":{}" for key in keys) + b"}," + orjson.dumps(rest)[1:]

    def answer(_: RemotingCommand) -> RemotingCommand:
        return commands.success(body=body)

    return answer


async def _wait_for_survey(url: str, group: str) -> None:
    headers = {"Authorization": f"Bearer {_TOKEN}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as http:

        async def surveyed() -> bool:
            try:
                groups = (await http.get("/v1/consumer-groups", params={"prefix": group})).json()["items"]
                replicas = (await http.get("/v1/live")).json()["replicas"]
            except httpx.HTTPError:
                return False
            answering = sum(1 for replica in replicas if replica["answers"])
            return answering == _REPLICAS and any(row["lag"] and row["dead_letters"] == _DEAD for row in groups)

        await wait_until(surveyed, "the survey of the group", 120)


async def test_operator_finds_the_reason_and_resends_the_dead_letters_in_two_minutes(
    replicas: list[tuple[Gantry, str]], incident: Incident
) -> None:
    async with browsing() as page:
        start = time.monotonic()
        await _walk(page, replicas[0][1], incident)
        seconds = time.monotonic() - start
    figure(f"walk through the live page: {seconds:.1f} s")
    assert seconds < _LIMIT


async def _walk(page: Page, url: str, incident: Incident) -> None:
    detail = page.locator("#detail")
    await log_in(page, url, _TOKEN)
    # Which group? Those that need attention come first.
    await page.locator("#t-groups").get_by_role("link", name=incident.group).click()
    # Which member, which queue?
    findings = detail.locator(".findings")
    await expect(findings).to_contain_text(f"{_FAILING} fails on messages of {incident.topic}")
    await expect(findings).to_contain_text(f"of {incident.topic}: {_MESSAGES} messages of {2 * _MESSAGES}")
    await expect(findings).to_contain_text(f"{_DEAD} dead letters")
    lag = detail.get_by_role("table", name=f"Lag of {incident.group}")
    await expect(lag.locator("tbody tr", has_text="broker-a:2")).to_contain_text(_FAILING)
    # Where is that member connected?
    await detail.get_by_role("table", name="Members").get_by_role("link", name=_FAILING).click()
    await expect(detail.get_by_role("table", name="Connections")).to_contain_text("gantry-1/")
    await page.go_back()
    # Which messages fail?
    letters = detail.get_by_role("table", name="Dead letters")
    await expect(letters.locator("tbody tr")).to_have_count(_DEAD)
    await letters.get_by_role("link", name=f"{2:016X}{0:016X}").click()
    await expect(detail.get_by_label("Body").locator("pre")).to_contain_text('"order": 17')
    await page.go_back()
    # Resend them.
    await detail.get_by_label("all shown").check()
    await detail.get_by_role("button", name="Resend chosen").click()
    await page.get_by_role("dialog").get_by_role("button", name="Resend chosen").click()
    await expect(page.locator("#report")).to_contain_text(f"{_DEAD} messages sent to %RETRY%{incident.group}")
