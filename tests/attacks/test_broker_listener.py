"""Attacks on the embedded broker's own listener, with a good client at the port."""

from collections.abc import Iterator

import orjson
import pytest

from remoting.codes import RequestCode, ResponseCode
from tests.attacks.good_client import memory_released, observed
from tests.benchmark.processes import rss_mb
from tests.cluster.client import Client, pull_fields, unique
from tests.cluster.servers import Gantry
from tests.ports import HOST, free_port

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def address() -> str:
    """The address of the broker's listener."""
    return f"{HOST}:{free_port()}"


@pytest.fixture(scope="module")
def gantry(tmp_path_factory: pytest.TempPathFactory, address: str) -> Iterator[Gantry]:
    directory = tmp_path_factory.mktemp("listener")
    embedded = f'[embedded]\ndirectory = "{directory / "broker"}"\nlisten = "{address}"\n'
    with Gantry(directory, "", f'drain_timeout = 0.5\ntools = "none"\n{embedded}[admin]\nlisten = "off"\n') as gantry:
        yield gantry


async def test_heartbeats_of_many_groups_are_refused(gantry: Gantry, address: str) -> None:
    subscriptions = [{"topic": f"t{number}", "subString": "*"} for number in range(5_000)]
    consumers: list[dict[str, object]] = [{"groupName": "g0", "subscriptionDataSet": subscriptions}]
    reference = {"$ref": "$.consumerDataSet[0].subscriptionDataSet"}
    consumers += [{"groupName": f"g{number}", "subscriptionDataSet": reference} for number in range(1, 1_000)]
    multiplied = orjson.dumps({"clientID": "attacker", "producerDataSet": [], "consumerDataSet": consumers})
    async with observed(gantry.address, gantry.pid, unique("t")) as observation, Client(address) as client:
        assert (await client.ask(RequestCode.HEART_BEAT, {}, multiplied)).code != ResponseCode.SUCCESS
        codes = []
        for beat in range(6):
            producers = [{"groupName": f"p{beat}-{number}"} for number in range(500)]
            body = orjson.dumps({"clientID": "attacker", "producerDataSet": producers, "consumerDataSet": []})
            codes.append((await client.ask(RequestCode.HEART_BEAT, {}, body)).code)
        assert codes == [ResponseCode.SUCCESS] * 2 + [ResponseCode.INVALID_PARAMETER] * 4
    observation.check(growth=40)


async def test_large_polls_and_locks_cost_only_their_sender(gantry: Gantry, address: str) -> None:
    topic, before = unique("t"), rss_mb(gantry.pid)
    queues = [{"topic": "t", "brokerName": f"broker-{number}", "queueId": 0} for number in range(400)]
    lock = orjson.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues, "padding": "x" * 500_000})
    async with observed(gantry.address, gantry.pid, topic) as observation:
        for _ in range(4):
            async with Client(address) as client:
                hour = pull_fields(topic, "g", 1, 0, 3_600_000)
                large = client.begin(RequestCode.PULL_MESSAGE, hour, bytes(15 * MIB))
                client.begin(RequestCode.PULL_MESSAGE, hour)
                await client.ask(RequestCode.LOCK_BATCH_MQ, {}, lock)
                assert (await large).code == ResponseCode.INVALID_PARAMETER
    observation.check(growth=100)
    await memory_released(gantry.pid, before + 64)


async def test_tool_requests_are_refused_and_change_nothing(gantry: Gantry, address: str) -> None:
    async with (
        observed(gantry.address, gantry.pid, unique("t")) as observation,
        Client(address, unique("victim")) as victim,
        Client(address) as stranger,
    ):
        group = unique("group")
        await victim.heartbeat({group: ["t"]})
        fields = {"consumerGroup": group, "clientId": victim.client_id, "topic": "t", "group": group}
        fields |= {"timestamp": "-1", "isForce": "true", "msgId": "m"}
        for code in (
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            RequestCode.DELETE_TOPIC_IN_BROKER,
        ):
            reply = await stranger.ask(code, fields, b"forged")
            assert reply.code == ResponseCode.NO_PERMISSION, RequestCode(code).name
        assert victim.pushes == [] or {push.code for push in victim.pushes} == {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}
    observation.check(growth=16)
