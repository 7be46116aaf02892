"""The official tool mqadmin with Gantry's port as its name server: requests that clients do not send."""

import re
from contextlib import suppress

import anyio.to_thread
import orjson
import pytest

from remoting.codes import RequestCode, ResponseCode, ToolCode
from tests.cluster.client import BROKER, Client, create_topic, json, unique, wait_until
from tests.cluster.servers import Cluster, Failed, Gantry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600, func_only=True)]


async def test_what_tools_ask_name_servers_and_brokers(cluster: Cluster, gantry: Gantry) -> None:
    topic, group, producers = await create_topic(cluster.broker, "asked"), unique("group"), unique("producers")
    async with Client(gantry.address) as tool, Client(gantry.address) as client:
        await client.send(topic, b"x")
        await client.heartbeat({group: [topic]}, producers=[producers])
        await client.pull(topic, group)
        for code, fields in (
            (ToolCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
            (ToolCode.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}),
        ):
            assert topic in json(await tool.get(code, fields))["topicList"]
        pair = {"namespace": unique("space"), "key": "k"}
        await tool.get(ToolCode.PUT_KV_CONFIG, {**pair, "value": "v"})
        assert (await tool.get(ToolCode.GET_KV_CONFIG, pair)).fields["value"] == "v"
        await tool.get(ToolCode.DELETE_KV_CONFIG, pair)
        assert (await tool.ask(ToolCode.GET_KV_CONFIG, pair)).code == ResponseCode.QUERY_NOT_FOUND

        async def listed() -> bool:
            reply = await tool.ask(ToolCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": producers})
            return reply.code == ResponseCode.SUCCESS and [
                item["clientId"] for item in json(reply)["connectionSet"]
            ] == [client.client_id]

        await wait_until(listed, "the producer")
        everywhere = json(await tool.get(ToolCode.GET_ALL_PRODUCER_INFO, {}))["data"]
        assert [item["clientId"] for item in everywhere[producers]] == [client.client_id]
        assert group in json(await tool.get(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic}))["groupList"]
        names = {"topic": topic, "group": group}
        found = json(await tool.get(ToolCode.QUERY_SUBSCRIPTION_BY_CONSUMER, names))
        assert found["subscriptionData"]["topic"] == topic
        assert json(await tool.get(ToolCode.GET_BROKER_RUNTIME_INFO, {}))["table"]["brokerVersionDesc"]
        assert f"brokerName={BROKER}" in (await tool.get(RequestCode.GET_BROKER_CONFIG, {})).body.decode()
        mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}
        await tool.get(ToolCode.SET_MESSAGE_REQUEST_MODE, {}, orjson.dumps(mode))
        question = {"topic": topic, "consumerGroup": group, "clientId": client.client_id, "strategyName": "AVG"}
        body = orjson.dumps({**question, "messageModel": "CLUSTERING"})
        [assigned] = json(await client.get(RequestCode.QUERY_ASSIGNMENT, {}, body))["messageQueueAssignments"]
        assert (assigned["mode"], assigned["messageQueue"]["queueId"]) == ("POP", -1)


# Java on every backend.
@pytest.mark.external
async def test_mqadmin_works_through_the_port(cluster: Cluster, gantry: Gantry) -> None:
    topic, group, producers = await create_topic(cluster.broker, "port"), unique("group"), unique("producers")
    async with Client(gantry.address) as client:
        await client.heartbeat({group: [topic]}, producers=[producers])
        await client.send(topic, b"x")

        async def prints(text: str, *words: str) -> None:
            """Retry, because the tool's time-out of three seconds includes its own start on a busy machine."""
            out = ""

            async def printed() -> bool:
                nonlocal out
                await client.heartbeat({group: [topic]}, producers=[producers])
                out = await anyio.to_thread.run_sync(lambda: cluster.admin(words[0], "-n", gantry.address, *words[1:]))
                return re.search(text, out) is not None

            with suppress(Failed):
                await wait_until(printed, text, 240)
            assert re.search(text, out), out

        await prints(rf"(?m)^{topic}\s*$", "topicList")
        await prints(rf"{BROKER} +0 +\S+ +V\d_\d", "clusterList")
        await prints(r"brokerVersionDesc", "brokerStatus", "-b", gantry.address)
        await prints(rf"brokerName += +{BROKER}", "getBrokerConfig", "-b", gantry.address)
        await prints(re.escape(client.client_id), "producerConnection", "-g", producers, "-t", topic)
        await prints(
            r"consume mode\[POP\]", "setConsumeMode", "-b", gantry.address, "-t", topic, "-g", group, "-m", "POP"
        )
        await prints("success", "updateKvConfig", "-s", unique("space"), "-k", "k", "-v", "v")
