"""Gantry before brokers with access control: everything works with its own credentials and those of the clients."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio.to_thread
import orjson
import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.core.signing import Signer
from remoting.codes import RequestCode, ResponseCode
from remoting.signature import Credentials
from tests.cluster.client import (
    Client,
    create_topic,
    described,
    json,
    lists,
    message_queue,
    queue_fields,
    send_fields,
    unique,
    v2,
    wait_until,
)
from tests.cluster.grpc.consumer import Consumer, codes
from tests.cluster.grpc.replica import Replica
from tests.cluster.reports import figure
from tests.cluster.servers import PEERS, Cluster, Gantry, eventually, started

pytestmark = [pytest.mark.cluster, pytest.mark.anyio, pytest.mark.timeout(240, func_only=True)]

# The kit's users of all brokers.
ADMIN, INNER = Credentials("admin", "admin-secret-1"), Credentials("inner", "inner-secret-1")
ALICE, BOB = Credentials("alice", "alice-secret-1"), Credentials("bob", "bob-secret-1")
_BROKERS = ("broker-a", "broker-b")
_IDENTITY = f"""
[cluster]
access_key = "{INNER.access_key}"
secret_key = "{INNER.secret_key}"
"""
_UPDATE_ACL = 3007


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers that check permissions, with a user who may use all topics and groups, and one without permission."""
    options = ("--acl", "--second-broker", "--fast-timers", "--quick")
    with started(tmp_path_factory, "secured", *options) as cluster:
        cluster.user(ALICE.access_key, ALICE.secret_key, "Topic:*=Pub,Sub", "Group:*=Sub")
        cluster.user(BOB.access_key, BOB.secret_key)
        yield cluster


@pytest.fixture(scope="module")
def gantry(secured: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    with Gantry(tmp_path_factory.mktemp("gantry"), secured.namesrv, _IDENTITY) as gantry:
        yield gantry


def _broker(secured: Cluster, name: str = "broker", user: Credentials = ADMIN) -> Client:
    return Client(secured.addresses[name], credentials=user)


def _client(gantry: Gantry, user: Credentials | None = ALICE, **options: Any) -> Client:
    return Client(gantry.address, credentials=user, **options)


async def _topic(secured: Cluster, name: str, queues: int = 1, kind: str = "NORMAL") -> str:
    topic = unique(name)
    await anyio.to_thread.run_sync(secured.topic, topic, queues, kind)
    return topic


async def _topic_of_one_broker(secured: Cluster, name: str, kind: str = "NORMAL") -> str:
    return await create_topic(secured.broker, name, 2, kind, ADMIN)


# The credentials of clients.


@pytest.mark.parametrize(
    ("user", "remark"),
    [
        (None, "username cannot be null"),
        (Credentials("nobody", "x"), "User:nobody is not found"),
        (Credentials(ALICE.access_key, "wrong"), "check signature failed"),
        (BOB, "User:bob has no permission"),
    ],
    ids=["no credential", "unknown user", "wrong secret", "no permission"],
)
async def test_requests_without_permission_are_denied(
    secured: Cluster, gantry: Gantry, user: Credentials | None, remark: str
) -> None:
    topic, group = await _topic(secured, "denied"), unique("group")
    async with _client(gantry, user) as client, _broker(secured) as admin:
        replies = [
            await client.ask(RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields(topic))), b"x"),
            await client.ask(RequestCode.GET_MAX_OFFSET, queue_fields(topic)),
            await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}),
            await client.ask(
                RequestCode.HEART_BEAT,
                body=orjson.dumps(
                    {
                        "clientID": client.client_id,
                        "producerDataSet": [],
                        "consumerDataSet": [
                            {"groupName": group, "subscriptionDataSet": [{"topic": topic, "subString": "*"}]}
                        ],
                    }
                ),
            ),
        ]
        for reply in replies:
            assert reply.code == ResponseCode.NO_PERMISSION, described(reply)
            assert remark in (reply.remark or "")
        assert await admin.consumers(group) == []
    async with _client(gantry) as alice:
        assert await alice.consumers(group) == [], "a denied client is no member here either"


_CLIENTS = ("java-remoting", "go-remoting", "java-grpc", "go-grpc")


def _run_clients(gantry: Gantry, user: Credentials, runs: Sequence[tuple[str, ...]]) -> list[tuple[int, str]]:
    """Run official clients at the same time; return the exit status and the output of each."""
    environment = {**os.environ, "PEERS_ACCESS_KEY": user.access_key, "PEERS_SECRET_KEY": user.secret_key}

    def run(words: tuple[str, ...]) -> tuple[int, str]:
        command: list[str | Path] = [
            sys.executable,
            PEERS,
            "client",
            *words,
            "--endpoint",
            gantry.address,
            "--timeout",
            "90",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
        return done.returncode, (done.stdout + done.stderr)[-3000:]

    with ThreadPoolExecutor(len(runs)) as pool:
        return list(pool.map(run, runs))


async def test_official_clients_with_credentials_send_and_receive(secured: Cluster, gantry: Gantry) -> None:
    runs: list[tuple[str, ...]] = []
    for name in _CLIENTS:
        # The Go client names no broker, so that the topic has only one.
        topic = await _topic_of_one_broker(secured, name)
        runs.append((name, "roundtrip", "6", "--topic", topic, "--group", f"g-{topic}"))
    topic = await _topic_of_one_broker(secured, "checked", "TRANSACTION")
    runs.append(("go-grpc", "roundtrip", "3", "--kind", "transaction-check", "--topic", topic, "--group", f"g-{topic}"))
    results = await anyio.to_thread.run_sync(_run_clients, gantry, ALICE, runs)
    for words, (status, output) in zip(runs, results, strict=True):
        assert status == 0, f"{words}: {output}"


# Requests of Gantry itself.


async def test_crashed_client_is_unregistered(secured: Cluster, gantry: Gantry) -> None:
    topic, group = await _topic(secured, "crash"), unique("group")
    async with _broker(secured) as admin:
        async with _client(gantry) as client:
            await client.heartbeat({group: [topic]})
            assert await admin.consumers(group) == [client.client_id]
            client.abort()
        await wait_until(lists(admin, group), "the crashed client being gone")


async def test_locks_are_split_by_broker(secured: Cluster, gantry: Gantry) -> None:
    topic, group = await _topic(secured, "locks", 2), unique("group")
    queues = [message_queue(topic, number, broker) for broker in _BROKERS for number in range(2)]
    async with _client(gantry) as client:
        await client.route(topic)
        body = orjson.dumps({"consumerGroup": group, "clientId": client.client_id, "mqSet": queues})
        # The brokers have not accepted a heartbeat: Gantry must not vouch for the client.
        denied = await client.ask(RequestCode.LOCK_BATCH_MQ, {}, body)
        assert "lockOKMQSet" not in denied.body.decode(), described(denied)
        await client.heartbeat({group: [topic]})
        granted = json(await client.get(RequestCode.LOCK_BATCH_MQ, {}, body))["lockOKMQSet"]
        assert sorted((q["brokerName"], q["queueId"]) for q in granted) == [(b, n) for b in _BROKERS for n in range(2)]


async def test_left_group_and_restarted_broker(secured: Cluster, gantry: Gantry) -> None:
    """The heartbeat of a client that has left a group is Gantry's; a restarted broker gets it, and the others'."""
    topic, kept, left = await _topic(secured, "again"), unique("kept"), unique("left")
    async with _client(gantry) as one, _client(gantry) as two:
        await one.heartbeat({kept: [topic], left: [topic]})
        await two.heartbeat({kept: [topic]})
        await one.get(RequestCode.UNREGISTER_CLIENT, {"clientID": one.client_id, "consumerGroup": left})
        await anyio.to_thread.run_sync(secured.kill, "broker-b")
        await anyio.to_thread.run_sync(secured.restart, "broker-b")
        async with _broker(secured, "broker-b") as admin:
            await wait_until(lists(admin, kept, one.client_id, two.client_id), "both being members again")
            assert await admin.consumers(left) == []


async def test_message_sent_back_is_redelivered(secured: Cluster, gantry: Gantry) -> None:
    topic, group = await _topic(secured, "back"), unique("group")
    async with _client(gantry) as client:
        await client.heartbeat({group: [topic, f"%RETRY%{group}"]})
        await client.send(topic, b"again")
        [message] = await client.pull(topic, group)
        back = {
            "offset": message.commit_log_offset,
            "group": group,
            "delayLevel": 1,
            "originTopic": topic,
            "unitMode": False,
        }
        await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, client.named(back))

        async def redelivered() -> bool:
            return [found.body for found in await client.pull(f"%RETRY%{group}", group)] == [b"again"]

        await wait_until(redelivered, "the redelivery")


async def test_grpc_messages_are_renewed(secured: Cluster) -> None:
    topic = await _topic(secured, "renewed")
    async with (
        Replica(
            secured.namesrv, unique("a"), Signer(INNER), min_polling=0.1, min_invisible=1.0, renewal=3.0
        ) as replica,
        Consumer(replica.address, unique("group"), topic) as consumer,
    ):
        await consumer.receive(wait=0.1)
        await consumer.send(b"0")
        [message] = await consumer.receive_all(1, auto_renew=True)
        assert await consumer.receive(wait=8) == []
        assert codes(await consumer.ack(message)) == [Code.OK] * 2


async def test_memberships_are_shared_by_the_sync_topic(
    secured: Cluster, gantry: Gantry, tmp_path_factory: pytest.TempPathFactory
) -> None:
    group = unique("group")
    with Gantry(tmp_path_factory.mktemp("replica"), secured.namesrv, _IDENTITY) as replica:
        # Without a topic, so that no broker has the member: the other replica knows it by the sync topic only.
        async with _client(gantry) as member, _client(replica) as observer:

            async def known() -> bool:
                # Only changes are announced, and a replica that has just started misses the first ones.
                leaving = {"clientID": member.client_id, "consumerGroup": group}
                await member.get(RequestCode.UNREGISTER_CLIENT, leaving)
                await member.heartbeat({group: []})
                return await observer.consumers(group) == [member.client_id]

            await wait_until(known, "the member at the other replica", pause=0.5)
            member.abort()
            await wait_until(lists(observer, group), "its departure at the other replica")


async def test_wrong_credentials_are_reported(secured: Cluster, tmp_path: Path) -> None:
    config = _IDENTITY.replace(INNER.secret_key, "wrong")
    with Gantry(tmp_path, secured.namesrv, config) as gantry:
        await eventually(lambda: "denies Gantry's own requests" in gantry.log.read_text(), "the log line")
        assert "wrong" not in gantry.log.read_text()


# The judge of the clients.


async def test_gantry_signs_for_its_clients_in_mode_check(
    secured: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = _IDENTITY + 'client_signatures = "check"\n'
    topic = await _topic(secured, "check")
    with Gantry(tmp_path_factory.mktemp("check"), secured.namesrv, config) as gantry:
        async with _client(gantry) as client:
            await client.send(topic, b"x", {"KEYS": "k"})
            [message] = await client.pull(topic, unique("group"))
            assert f"__BORNHOST\x01{client.local_address}" in message.properties


async def test_revoked_permission_is_denied_by_the_brokers(secured: Cluster, gantry: Gantry) -> None:
    carol = Credentials("carol", "carol-secret-1")
    topic = await _topic(secured, "revoked")
    await anyio.to_thread.run_sync(secured.user, carol.access_key, carol.secret_key, f"Topic:{topic}=Pub")
    async with _client(gantry, carol) as client, _broker(secured) as admin:
        await client.send(topic, b"permitted")
        deny = [{"resource": f"Topic:{topic}", "actions": ["Pub"], "decision": "Deny"}]
        body = {"subject": "User:carol", "policies": [{"policyType": "Custom", "entries": deny}]}
        begin = time.monotonic()
        await admin.get(_UPDATE_ACL, {"subject": "User:carol"}, orjson.dumps(body))

        async def denied() -> bool:
            fields = v2(client.named(send_fields(topic)))
            reply = await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x")
            return reply.code == ResponseCode.NO_PERMISSION

        await wait_until(denied, "the denial")
        figure(f"a permission revoked at the broker is denied after {time.monotonic() - begin:.2f} s")
