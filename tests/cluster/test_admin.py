"""The admin API of a replica in front of a real cluster, with official clients."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import httpx
import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.codes import RequestCode
from tests.cluster.backends import Backend
from tests.cluster.client import Client, create_topic, queue_fields, unique, wait_until
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.grpc.replica import create_group
from tests.cluster.servers import HOST, PEERS, Cluster, Failed, Gantry
from tests.faults.java_consumer import JavaConsumer
from tests.ports import free_port

pytestmark = [
    pytest.mark.backends(
        Backend.CLUSTER, reason="it configures the broker while it runs, and looks at one that is not Gantry"
    ),
    pytest.mark.anyio,
    pytest.mark.timeout(240, func_only=True),
]

_TOKEN = "a-token-for-operators"
# A request of mqadmin to a broker.
_UPDATE_BROKER_CONFIG = 25
_BROKER = "broker-a"
_SLOW = 60.0
# Seconds within which a client is a member that may be compiled first.
_COMPILED = 180.0


class Operated(Gantry):
    """A replica with an admin API."""

    admin_port: int


@pytest.fixture(scope="module")
def operated(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    port = free_port()
    config = f'[admin]\nlisten = "{HOST}:{port}"\nwrite_token = "{_TOKEN}"\n'
    with Operated(tmp_path_factory.mktemp("operated"), cluster.namesrv, config) as gantry:
        gantry.admin_port = port
        yield gantry


class Api:
    """The admin API as an operator uses it."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def get(self, path: str, **query: Any) -> Any:
        """Send a GET that must succeed; return its JSON."""
        answer = await self._http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None) -> Any:
        """Send a POST that must succeed; return its JSON."""
        answer = await self._http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Send a request that must be rejected; return status and detail of the problem."""
        answer = await self._http.request(method, path, json=body)
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        return answer.status_code, answer.json()["detail"]


@pytest.fixture
async def api(operated: Operated) -> AsyncIterator[Api]:
    headers = {"Authorization": f"Bearer {_TOKEN}"}
    url = f"http://{HOST}:{operated.admin_port}"
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as http:
        some = Api(http)

        async def up() -> bool:
            try:
                return bool((await some.get("/v1/brokers"))["items"])
            except httpx.ConnectError:
                return False

        await wait_until(up, "the admin API")
        yield some


@contextmanager
def live(client: str, address: str, topic: str, group: str) -> Iterator[None]:
    """Run an official client that consumes inside the context."""
    words = ("consume", "1000", "--endpoint", address, "--topic", topic, "--group", group, "--timeout", "100")
    process = subprocess.Popen(
        [sys.executable, PEERS, "client", client, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def _member(api: Api, group: str) -> Any:
    """Wait for a member of a group; return the first one."""

    members: list[Any] = []

    async def found() -> list[Any]:
        groups = await api.get("/v1/consumer-groups")
        if any(item["name"] == group for item in groups["items"]):
            members[:] = (await api.get(f"/v1/consumer-groups/{group}"))["members"]
        return members

    await wait_until(found, "a member", _COMPILED)
    return members[0]


async def _set(cluster: Cluster, text: str) -> None:
    """Change settings of the running broker."""
    async with Client(cluster.broker) as tool:
        await tool.get(_UPDATE_BROKER_CONFIG, body=text.encode())


@pytest.fixture
async def keeping_resets(cluster: Cluster) -> AsyncIterator[None]:
    """The broker applies resets itself, as by default, instead of pushing them to clients."""
    await _set(cluster, "useServerSideResetOffset=true")
    yield
    await _set(cluster, "useServerSideResetOffset=false")


# Brokers, topics, groups.


async def test_brokers_name_servers_and_topics_are_listed(cluster: Cluster, api: Api) -> None:
    topic = await create_topic(cluster.broker, "seen", queues=3)
    (broker,) = (await api.get("/v1/brokers"))["items"]
    assert (broker["name"], broker["healthy"]) == (_BROKER, True)
    assert [(item["id"], item["address"], item["state"]) for item in broker["addresses"]] == [
        (0, cluster.broker, "connected")
    ]
    (server,) = (await api.get("/v1/name-servers"))["items"]
    assert (server["address"], server["state"]) == (cluster.namesrv, "connected")
    everything = (await api.get("/v1/topics", system=True, limit=1000))["items"]
    (row,) = [item for item in everything if item["name"] == topic]
    assert row == {
        "name": topic,
        "kind": "NORMAL",
        "brokers": [_BROKER],
        "read_queues": 3,
        "write_queues": 3,
        "system": False,
    }
    own = {item["name"] for item in everything if item["system"]}
    assert own >= {"TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", _BROKER, "DefaultCluster"}
    # Names of tests' topics end with a digit.
    assert {item["name"] for item in everything if not item["system"] and not item["name"][-1].isdigit()} == set()
    detail = await api.get(f"/v1/topics/{topic}")
    assert (detail["kind"], detail["order"]) == ("NORMAL", None)
    assert detail["brokers"] == [
        {
            "broker": _BROKER,
            "addresses": {"0": cluster.broker},
            "permission": "RW",
            "read_queues": 3,
            "write_queues": 3,
        }
    ]
    assert (await api.refused("GET", f"/v1/topics/{unique('nothing')}"))[0] == 404


async def test_lag_of_a_group_is_reported_by_queue(cluster: Cluster, operated: Operated, api: Api) -> None:
    topic, group = await create_topic(cluster.broker, "lag", queues=2), unique("group")
    assert (await api.refused("GET", f"/v1/consumer-groups/{group}/lag"))[0] == 404
    async with Client(operated.address) as client:
        await client.heartbeat({group: [topic]})
        for _ in range(3):
            await client.send(topic, b"x")
        await client.get(
            RequestCode.UPDATE_CONSUMER_OFFSET, {**queue_fields(topic, consumerGroup=group), "commitOffset": 1}
        )

        async def lag_is_reported() -> bool:
            found = (await api.get(f"/v1/consumer-groups/{group}/lag", topic=topic))["queues"]
            return [(row["queue"], row["end"], row["consumed"], row["lag"]) for row in found] == [
                (0, 3, 1, 2),
                (1, 0, 0, 0),
            ]

        await wait_until(lag_is_reported, "the lag")
        (first, _) = (await api.get(f"/v1/consumer-groups/{group}/lag"))["queues"]
        assert (first["topic"], first["broker"]) == (topic, _BROKER)
        assert datetime.fromisoformat(first["consumed_until"]) > datetime.now(UTC) - timedelta(minutes=2)


# Resets.


@pytest.mark.usefixtures("keeping_resets")
async def test_reset_offset_moves_a_group(cluster: Cluster, operated: Operated, api: Api) -> None:
    topic, group = await create_topic(cluster.broker, "moved", queues=2), await create_group(cluster)
    path = f"/v1/consumer-groups/{group}/reset-offset"
    async with Client(operated.address) as client:
        for _ in range(2):
            await client.send(topic, b"old")
        await anyio.sleep(0.01)
        middle = datetime.now(UTC)
        await anyio.sleep(0.01)
        for _ in range(2):
            await client.send(topic, b"new")
        # A broker updates the end of a queue a moment after the response to the send.
        await client.pull_all(4, topic, unique("group"))

        async def moved(body: dict[str, Any]) -> dict[int, int]:
            found = await api.post(path, {"topic": topic, **body})
            assert found["group"] == group
            return {row["queue"]: row["offset"] for row in found["queues"]}

        assert await moved({"to": "earliest"}) == {0: 0, 1: 0}
        assert await moved({"to": "latest"}) == {0: 4, 1: 0}
        assert await moved({"time": middle.isoformat()}) == {0: 2, 1: 0}
        assert await moved({"broker": _BROKER, "queue": 0, "offset": 3}) == {0: 3}
        offset = await client.get(RequestCode.QUERY_CONSUMER_OFFSET, queue_fields(topic, consumerGroup=group))
        assert offset.fields["offset"] == "3"
        status, detail = await api.refused(
            "POST", path, {"topic": topic, "broker": _BROKER, "queue": 0, "offset": 4711}
        )
        assert (status, "4711" in detail) == (409, True)
        elsewhere = f"/v1/consumer-groups/{unique('nobody')}/reset-offset"
        assert (await api.refused("POST", elsewhere, {"topic": topic, "to": "latest"}))[0] == 404
        assert (await api.refused("POST", path, {"topic": unique("nothing"), "to": "latest"}))[0] == 404


async def test_reset_of_one_queue_is_rejected_if_brokers_leave_resets_to_clients(
    cluster: Cluster, operated: Operated, api: Api
) -> None:
    """Such brokers cannot reset a single queue, and would move the whole group to the end."""
    topic, group = await create_topic(cluster.broker, "single", queues=2), unique("group")
    path = f"/v1/consumer-groups/{group}/reset-offset"
    async with Client(operated.address) as client:
        await client.heartbeat({group: [topic]})
        for queue in (0, 1):
            for _ in range(3):
                await client.send(topic, b"x", queue=queue)
            await client.get(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                {**queue_fields(topic, queue, consumerGroup=group), "commitOffset": 2},
            )
        status, detail = await api.refused("POST", path, {"topic": topic, "broker": _BROKER, "queue": 0, "offset": 1})
        assert (status, "useServerSideResetOffset" in detail) == (409, True)
        assert not client.pushed(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)


async def test_reset_offset_moves_a_live_consumer(cluster: Cluster, operated: Operated, api: Api) -> None:
    """The broker pushes the new offsets to its clients."""
    topic, group = await create_topic(cluster.broker, "live", queues=1), unique("group")
    with JavaConsumer(operated.address, topic, group) as holder:
        await anyio.to_thread.run_sync(lambda: holder.wait(1, _SLOW))
        async with Client(operated.address) as client:

            async def progress() -> tuple[int, int]:
                rows = (await api.get(f"/v1/consumer-groups/{group}/lag", topic=topic))["queues"]
                return (int(rows[0]["consumed"]), int(rows[0]["end"])) if rows else (0, -1)

            async def begun() -> bool:
                # The consumer owns its queue before it reads its first offset, and may skip the messages sent until
                # then.
                await client.send(topic, b"x")
                return (await progress())[0] > 0

            async def done() -> bool:
                consumed, end = await progress()
                return consumed == end

            # Clients commit their offsets every five seconds.
            await wait_until(begun, "a message being consumed", 60, 1.0)
            await wait_until(done, "all messages being consumed")
            answer = await api.post(f"/v1/consumer-groups/{group}/reset-offset", {"topic": topic, "to": "earliest"})
            assert [(row["queue"], row["offset"]) for row in answer["queues"]] == [(0, 0)]

            async def back() -> bool:
                return (await progress())[0] == 0

            # A client pauses for ten seconds after a reset.
            await wait_until(back, "the consumer going back", 60)
            await wait_until(done, "the messages being consumed again")


# Requests to clients.


async def test_a_remoting_client_reports_its_state_and_verifies_a_message(
    cluster: Cluster, operated: Operated, api: Api
) -> None:
    topic, group = await create_topic(cluster.broker, "asked", queues=2), unique("group")
    with JavaConsumer(operated.address, topic, group) as holder:
        await anyio.to_thread.run_sync(lambda: holder.wait(2, _SLOW))
        async with Client(operated.address) as client:
            member = await _member(api, group)
            assert (member["protocol"], member["language"], member["version"]) == ("remoting", "JAVA", "5.4.0")
            who = member["client_id"]
            info = await api.get(f"/v1/clients/{who}/running-info", group=group)
            assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert topic in info["subscriptions"]
            assert {(row["topic"], row["broker"], row["queue"]) for row in info["queues"]} >= {
                (topic, _BROKER, 0),
                (topic, _BROKER, 1),
            }
            assert info["stack"] is None
            info = await api.get(f"/v1/clients/{who}/running-info", group=group, stack=True)
            assert "PullMessageService" in info["stack"]
            owners = await api.get(f"/v1/consumer-groups/{group}/queues")
            assert owners["unanswered"] == []
            assert [row for row in owners["queues"] if row["topic"] == topic] == [
                {"topic": topic, "broker": _BROKER, "queue": queue, "client_ids": [who]} for queue in (0, 1)
            ]
            sent = await client.send(topic, b"eat me")
            question = {"group": group, "topic": topic, "broker": _BROKER, "message_id": sent.fields["msgId"]}
            verified = await api.post(f"/v1/clients/{who}/verify", question)
            assert verified["result"] == "CR_SUCCESS"
            absent = {**question, "message_id": sent.fields["msgId"][:-4] + "7FFF"}
            assert (await api.refused("POST", f"/v1/clients/{who}/verify", absent))[0] in (404, 409)
            assert (await api.refused("GET", f"/v1/clients/nobody/running-info?group={group}"))[0] in (404, 409)


@pytest.mark.parametrize(("name", "verifies"), [("java-grpc", True), ("go-grpc", False)])
async def test_a_grpc_client_reports_its_state_and_verifies_a_message(
    cluster: Cluster, operated: Operated, api: Api, name: str, verifies: bool
) -> None:
    """The Go client responds that it does not verify messages."""
    topic, group = await create_topic(cluster.broker, "asked", queues=2), await create_group(cluster)
    with live(name, operated.address, topic, group):
        member = await _member(api, group)
        # A connected client without a group does not interfere.
        async with Client(operated.address) as client:
            assert member["protocol"] == "grpc"
            who = member["client_id"]
            info = await api.get(f"/v1/clients/{who}/running-info", group=group, stack=True)
            assert info["stack"]
            owners = await api.get(f"/v1/consumer-groups/{group}/queues")
            assert (owners["queues"], owners["unanswered"]) == ([], [])
            sent = await client.send(topic, b"eat me")
            question = {"group": group, "topic": topic, "broker": _BROKER, "message_id": sent.fields["msgId"]}
            if verifies:
                verified = await api.post(f"/v1/clients/{who}/verify", question)
                assert verified["result"] in ("CR_SUCCESS", "CR_LATER")
            else:
                status, detail = await api.refused("POST", f"/v1/clients/{who}/verify", question)
                assert (status, "NOT_IMPLEMENTED" in detail) == (409, True)


# Dead letters.


async def _letters(api: Api, group: str, count: int) -> Any:
    async def found() -> bool:
        # The topic is created with the first dead letter.
        found = await api._http.get(f"/v1/consumer-groups/{group}/dead-letters")
        return found.status_code == 200 and len(found.json()["items"]) == count

    await wait_until(found, "the dead letters")
    return (await api.get(f"/v1/consumer-groups/{group}/dead-letters"))["items"]


async def _resent(api: Api, group: str, message_id: str, **more: str) -> Any:
    """Resend a dead letter; brokers index messages a moment after they store them."""
    path = f"/v1/consumer-groups/{group}/dead-letters/resend"
    found: list[Any] = []

    async def sent() -> bool:
        found[:] = (await api.post(path, {"message_ids": [message_id], **more}))["items"]
        return bool(found[0]["sent"])

    with suppress(Failed):
        await wait_until(sent, "the dead letter being sent")
    assert found[0]["sent"], found
    return found[0]


async def test_dead_letters_of_a_remoting_group_are_listed_and_redelivered(
    cluster: Cluster, operated: Operated, api: Api
) -> None:
    topic, group = await create_topic(cluster.broker, "dead"), unique("group")
    path = f"/v1/consumer-groups/{group}/dead-letters"
    assert (await api.refused("GET", path))[0] == 404
    unique_id = f"7F000001000018B4AAC2{unique('')[-6:].replace('-', '0').zfill(12)}"
    async with Client(operated.address) as client:
        await client.heartbeat({group: [topic]})
        await client.send(topic, b"dead", {"UNIQ_KEY": unique_id, "TAGS": "A", "KEYS": "k"})
        [stored] = await client.pull(topic, group)
        # Redelivered once, then dead-lettered.
        back = {"offset": stored.commit_log_offset, "group": group, "delayLevel": 1, "originTopic": topic}
        await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, client.named(back))
        [stored] = await client.pull(f"%RETRY%{group}", group, wait=10_000)
        back = {**back, "offset": stored.commit_log_offset, "delayLevel": -1, "originTopic": f"%RETRY%{group}"}
        await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, client.named(back))
        (letter,) = await _letters(api, group, 1)
        assert (letter["message_id"], letter["topic"], letter["tag"]) == (unique_id, topic, "A")
        assert (letter["broker"], letter["bytes"]) == (_BROKER, 4)
        resent = await _resent(api, group, unique_id)
        assert resent["topic"] == f"%RETRY%{group}"
        [_, again] = await client.pull_all(2, f"%RETRY%{group}", group)
        assert (again.body, again.get("RETRY_TOPIC"), again.get("UNIQ_KEY")) == (b"dead", topic, unique_id)
        resent = await _resent(api, group, unique_id, to="topic")
        assert resent["topic"] == topic
        found = await client.pull_all(2, topic, group)
        assert [message.body for message in found] == [b"dead"] * 2


@pytest.mark.parametrize("modern", [False, True])
async def test_dead_letters_of_a_grpc_group_are_listed_and_redelivered(
    cluster: Cluster, operated: Operated, api: Api, modern: bool
) -> None:
    """They are redelivered with both versions of the retry topics of popping consumers."""
    topic, group = await create_topic(cluster.broker, "dead"), await create_group(cluster)
    await _set(cluster, f"enableRetryTopicV2={str(modern).lower()}")
    try:
        await _dead_letters_come_back(operated, api, topic, group)
    finally:
        await _set(cluster, "enableRetryTopicV2=false")


async def test_redelivery_to_a_grpc_group_is_rejected_without_a_usable_retry_topic(
    cluster: Cluster, operated: Operated, api: Api
) -> None:
    """Brokers accept no messages for v2 retry topics, and may be configured to read no others."""
    topic, group = await create_topic(cluster.broker, "dead"), await create_group(cluster)
    async with Consumer(operated.address, group, topic) as consumer:
        await consumer.receive(wait=0.1)
        await consumer.send(b"dead")
        [message] = await consumer.receive_all(1, invisible=30)
        assert (await consumer.forward(message)).status.code == Code.OK
        (letter,) = await _letters(api, group, 1)
        await _set(cluster, "enableRetryTopicV2=true\nretrieveMessageFromPopRetryTopicV1=false")
        try:
            resent = await _resent(api, group, letter["message_id"], to="topic")
            assert resent["topic"] == topic
            [again] = await consumer.receive_all(1, invisible=30)
            assert again.body == b"dead"
            path = f"/v1/consumer-groups/{group}/dead-letters/resend"
            orders = {"message_ids": [letter["message_id"]], "to": "pop_retry"}
            (refused,) = (await api.post(path, orders))["items"]
            assert not refused["sent"]
            assert "retrieveMessageFromPopRetryTopicV1" in refused["text"]
        finally:
            await _set(cluster, "enableRetryTopicV2=false\nretrieveMessageFromPopRetryTopicV1=true")


async def _dead_letters_come_back(operated: Operated, api: Api, topic: str, group: str) -> None:
    """A message that was dead-lettered immediately, and one that was redelivered before."""
    async with Consumer(operated.address, group, topic) as consumer:
        await consumer.receive(wait=0.1)
        for count, retried in enumerate((False, True), 1):
            body = b"dead %d" % count
            await consumer.send(body)
            [message] = await consumer.receive_all(1, invisible=30)
            if retried:
                await consumer.change(message, 0)
                [message] = await consumer.receive_all(1, invisible=30)
                assert message.system_properties.delivery_attempt == 2
            assert (await consumer.forward(message)).status.code == Code.OK
            letter = (await _letters(api, group, count))[0]
            assert (letter["topic"], letter["bytes"]) == (topic, len(body))
            # The redelivered message shows that consumers of the group pop.
            resent = await _resent(api, group, letter["message_id"], to="auto" if retried else "pop_retry")
            assert resent["topic"] == f"%RETRY%{group}_{topic}"
            [again] = await consumer.receive_all(1, invisible=30)
            assert (again.body, again.topic.name) == (body, topic)
            await consumer.ack(again)
