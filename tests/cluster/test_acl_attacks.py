"""A user who reaches for messages, transactions and replies of another, before brokers with access control and on the
embedded broker.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio.to_thread
import orjson
import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.ids import OffsetMessageId, RecallHandle
from remoting.signature import Credentials
from tests.cluster.client import Client, create_topic, described, lists, send_fields, unique, v2, wait_until
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.grpc.telemetry import Telemetry
from tests.cluster.servers import HOST, PEERS, Failed, Gantry, started
from tests.ports import free_port
from tests.proxy.auth.users import grpc_metadata, write

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240, func_only=True)]

# The kit's super users of all brokers.
ADMIN, INNER = Credentials("admin", "admin-secret-1"), Credentials("inner", "inner-secret-1")
ALICE, MALLORY = (Credentials(name, f"secret-of-{name}") for name in ("alice-01", "mallory-1"))
# A user with temporary credentials.
TEMPORARY, TOKEN = Credentials("temporary", "secret-of-temporary"), "token-1"
_GRANTS = {
    ALICE: ("Topic:orders*=Pub,Sub", "Group:*=Sub"),
    MALLORY: ("Topic:own*=Pub,Sub", "Group:*=Sub"),
    TEMPORARY: ("Topic:orders*=Pub,Sub", "Group:*=Sub"),
}
_COMMIT = 8
_DENIED = ResponseCode.NO_PERMISSION


@dataclass(frozen=True)
class Place:
    """A replica that authenticates clients. broker: address of its broker."""

    address: str
    broker: str

    def client(self, user: Credentials, client_id: str = "") -> Client:
        return Client(self.address, client_id, credentials=user)

    def grpc(self, user: Credentials, topic: str, group: str = "") -> Consumer:
        consumer = Consumer(self.address, group or unique("group"), topic)
        consumer.metadata += tuple(grpc_metadata(user).items())
        return consumer

    async def topic(self, name: str, kind: str = "NORMAL") -> str:
        return await create_topic(self.broker, name, 1, kind, ADMIN)


def _users(folder: Path, *names: Credentials) -> Path:
    lines = [f'[users.{ADMIN.access_key}]\nsecret = "{ADMIN.secret_key}"\nrole = "super"']
    for user in names:
        lines.append(f'[users.{user.access_key}]\nsecret = "{user.secret_key}"')
        if user is TEMPORARY:
            lines.append(f'security_token = "{TOKEN}"')
        for grant in _GRANTS[user]:
            resource, _, actions = grant.partition("=")
            lines.append(f'[[users.{user.access_key}.policies]]\nresources = "{resource}"')
            lines.append(f"actions = {actions.split(',')}")
    return write(folder / "users.toml", "\n".join(lines))


@pytest.fixture(scope="module", params=[pytest.param("cluster", marks=pytest.mark.cluster), "embedded"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    if request.param == "embedded":
        broker = f"{HOST}:{free_port()}"
        config = f"""
            [embedded]
            directory = "{folder / "store"}"
            listen = "{broker}"
            transaction_timeout = 2
            transaction_interval = 1
            [auth]
            users = "{_users(folder, *_GRANTS)}"
        """
        with Gantry(folder, "", config) as gantry:
            yield Place(gantry.address, broker)
        return
    with started(tmp_path_factory, "attacked", "--acl", "--fast-timers", "--quick") as cluster:
        for user, grants in _GRANTS.items():
            cluster.user(user.access_key, user.secret_key, *grants)
        # Brokers have no security tokens, so that this user is in a file, too.
        config = f"""
            [cluster]
            access_key = "{INNER.access_key}"
            secret_key = "{INNER.secret_key}"
            [auth]
            brokers = true
            users = "{_users(folder, TEMPORARY)}"
        """
        with Gantry(folder, cluster.namesrv, config) as gantry:
            yield Place(gantry.address, cluster.broker)


async def _send_half(client: Client, topic: str, group: str, **more: str) -> dict[str, object]:
    """Send a half message with more properties; return the fields of the request that commits it."""
    unique_id = unique("TX")
    pairs = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: group, "UNIQ_KEY": unique_id, **more}
    prepared = int(messages.SysFlag.TRANSACTION_PREPARED)
    half = await client.send(topic, b"half", pairs, producerGroup=group, sysFlag=prepared)
    return {
        "producerGroup": group,
        "tranStateTableOffset": half.fields["queueOffset"],
        "commitLogOffset": OffsetMessageId.parse(half.fields["msgId"]).offset,
        "commitOrRollback": _COMMIT,
        "msgId": unique_id,
        "transactionId": unique_id,
    }


async def test_transactions_of_remoting_clients(place: Place) -> None:
    """Everyone may join a producer group; its checks and the ends of its transactions need Pub on their topic."""
    topic, own = await place.topic("orders", "TRANSACTION"), await place.topic("own")
    group = unique("producers")
    async with place.client(ALICE) as alice, place.client(MALLORY) as mallory:
        for client, name in ((alice, topic), (mallory, own)):
            await client.route(name)
            await client.heartbeat(producers=[group])
        end = await _send_half(alice, topic, group)
        for name in (own, topic, ""):
            reply = await mallory.ask(RequestCode.END_TRANSACTION, mallory.named({**end, "topic": name}))
            assert reply.code == _DENIED, described(reply)
        for _ in range(2):
            check = await alice.push(RequestCode.CHECK_TRANSACTION_STATE)
        assert not mallory.pushed(RequestCode.CHECK_TRANSACTION_STATE)
        [checked] = messages.decode_messages(check.body)
        assert (checked.body, check.fields["topic"]) == (b"half", topic)
        answer = {**end, "topic": topic, "fromTransactionCheck": True, "bname": check.fields["bname"]}
        answer["tranStateTableOffset"] = check.fields["tranStateTableOffset"]
        answer["commitLogOffset"] = check.fields["commitLogOffset"]
        # Brokers send no response to a successful one.
        alice.send_oneway(RequestCode.END_TRANSACTION, answer)
        [message] = await alice.pull(topic, unique("group"), wait=20_000)
        assert message.body == b"half"


async def test_a_half_message_does_not_undo_the_end_of_another(place: Place) -> None:
    """A broker would take a forged one for its copy of the other, ask for the outcome again and commit it twice."""
    topic, own, group = await place.topic("orders", "TRANSACTION"), await place.topic("own"), unique("producers")
    async with place.client(ALICE) as alice, place.client(MALLORY) as mallory:
        for client, name in ((alice, topic), (mallory, own)):
            await client.route(name)
            await client.heartbeat(producers=[f"{group}-{name}"])
        first = int(str((await _send_half(mallory, own, group))["tranStateTableOffset"]))
        # Its place is known approximately. The embedded broker accepts the forged ones, since it has no such copies.
        for number in range(6):
            forged = {properties.CHECK_IMMUNITY_TIME_IN_SECONDS: "60"}
            forged[properties.TRANSACTION_PREPARED_QUEUE_OFFSET] = str(first + 7 + number)
            with suppress(AssertionError):
                await _send_half(mallory, own, group, **forged)
        end = await _send_half(alice, topic, f"{group}-{topic}")
        alice.send_oneway(RequestCode.END_TRANSACTION, alice.named({**end, "topic": topic}))
        with pytest.raises(Failed):
            await alice.push(RequestCode.CHECK_TRANSACTION_STATE, timeout=10.0)
        assert [message.body for message in await alice.pull(topic, unique("group"), wait=20_000)] == [b"half"]


async def test_transactions_of_grpc_clients(place: Place) -> None:
    topic, own = await place.topic("orders", "TRANSACTION"), await place.topic("own")
    async with (
        place.grpc(ALICE, topic) as alice,
        place.grpc(MALLORY, own) as mallory,
        Telemetry(alice, d.PRODUCER) as asked,
    ):
        sent = await alice.send_one(b"half", message_type=d.TRANSACTION)

        def end(name: str, transaction_id: str) -> Any:
            return pb.EndTransactionRequest(
                topic=d.Resource(name=name),
                message_id=sent.message_id,
                transaction_id=transaction_id,
                resolution=d.COMMIT,
            )

        # The id of the message stands for half messages of the same topic only.
        for name, code in ((own, Code.INVALID_TRANSACTION_ID), (topic, Code.FORBIDDEN)):
            reply = await mallory.call("EndTransaction", end(name, sent.transaction_id))
            assert reply.status.code == code, reply
        check = await asked.wait("recover_orphaned_transaction_command")
        for name in (own, topic):
            reply = await mallory.call("EndTransaction", end(name, check.transaction_id))
            assert reply.status.code == Code.FORBIDDEN, reply
        assert check.message.body == b"half"
        assert (await alice.call("EndTransaction", end(topic, check.transaction_id))).status.code == Code.OK
        [message] = await alice.receive_all(1)
        assert message.body == b"half"


_FORGED = {
    "queues of another topic": {properties.INNER_MULTI_DISPATCH: "{topic}"},
    "lite topics": {properties.INNER_MULTI_DISPATCH: "%LMQ%{topic}"},
    "own and other queues": {properties.INNER_MULTI_DISPATCH: "{own},{topic}"},
    "a delayed message": {properties.TIMER_DEL_UNIQKEY: "{key}", "TIMER_DELIVER_MS": "{at}"},
}


async def test_forged_properties_do_not_reach_other_topics(place: Place) -> None:
    topic, own = await place.topic("orders", "DELAY"), await place.topic("own")
    async with place.client(ALICE) as alice, place.client(MALLORY) as mallory:
        key = unique("KEY")
        await alice.send(topic, b"delayed", {"UNIQ_KEY": key, "TIMER_DELAY_SEC": "6"})
        delivery = str(int(send_fields(topic)["bornTimestamp"]) + 6000)  # type: ignore[call-overload]
        for forged in _FORGED.values():
            pairs = {name: value.format(topic=topic, own=own, key=key, at=delivery) for name, value in forged.items()}
            fields = mallory.named(send_fields(own, properties.encode(pairs)))
            for code, header in (
                (RequestCode.SEND_MESSAGE, fields),
                (RequestCode.SEND_MESSAGE_V2, v2(fields)),
                (RequestCode.SEND_REPLY_MESSAGE_V2, v2(fields)),
            ):
                reply = await mallory.ask(code, header, b"forged")
                assert reply.code == _DENIED, described(reply)
            entry = messages.encode_batch([messages.BatchMessage(0, b"forged", properties.encode(pairs))])
            batch = {**v2(mallory.named(send_fields(own))), "m": "true"}
            reply = await mallory.ask(RequestCode.SEND_BATCH_MESSAGE, batch, entry)
            assert reply.code == _DENIED, described(reply)
        found = await alice.pull(topic, unique("group"), wait=20_000)
        assert [message.body for message in found] == [b"delayed"]
    async with place.grpc(MALLORY, own) as client:
        for forged in _FORGED.values():
            message = d.Message(
                topic=client.topic,
                body=b"forged",
                user_properties={
                    name: value.format(topic=topic, own=own, key=key, at=1) for name, value in forged.items()
                },
                system_properties=d.SystemProperties(message_id=unique("01")),
            )
            reply = await client.call("SendMessage", pb.SendMessageRequest(messages=[message]))
            assert reply.status.code in (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, Code.FORBIDDEN), reply


async def test_receipt_handles_of_another_topic_and_group(place: Place) -> None:
    topic, own = await place.topic("orders"), await place.topic("own")
    group = unique("group")
    async with place.grpc(ALICE, topic, group) as alice, place.grpc(MALLORY, own) as mallory:
        await alice.receive(wait=0.1)
        await alice.send(b"mine")
        [message] = await alice.receive_all(1, invisible=10)
        await mallory.receive(wait=0.1)
        # In its own group, and as a consumer of the victim's.
        for used in (mallory.group, alice.group):
            mallory.group = used
            # Brokers look the handle's offset up in the topic and the group of the request.
            await mallory.ack(message)
            await mallory.change(message, 600)
            assert (await mallory.forward(message)).status.code == Code.FORBIDDEN
        mallory.topic = alice.topic
        for work in (mallory.ack, mallory.forward):
            assert (await work(message)).status.code == Code.FORBIDDEN
        assert (await mallory.change(message, 600)).status.code == Code.FORBIDDEN
        [again] = await alice.receive_all(1)
        assert (again.body, again.system_properties.delivery_attempt) == (b"mine", 2)
        assert (await alice.ack(again)).status.code == Code.OK


async def test_names_in_other_spellings_of_a_body(place: Place) -> None:
    """Brokers accept long keys in batch acks, and read the name 1 from the number 1."""
    topic, own = await place.topic("orders"), await place.topic("own")
    ack = {"r": "0", "so": 0, "q": 0, "rq": 1, "pt": 1, "it": 60000, "b": "AQ=="}
    mine, other = {"c": "g", "t": own}, {"consumerGroup": "g", "topic": topic}
    async with place.client(MALLORY) as mallory:
        await mallory.route(own)
        for body in (
            {"acks": [{**ack, **mine, **other}]},
            {**mine, "acks": [{**ack, **other}]},
            {**mine, "acks": [{**ack, "c": 1, "t": 1}]},
        ):
            fields = mallory.named({"brokerName": "broker-a", "bname": "broker-a"})
            encoded = orjson.dumps({"brokerName": "broker-a", **body})
            reply = await mallory.ask(RequestCode.BATCH_ACK_MESSAGE, fields, encoded)
            assert reply.code in (_DENIED, ResponseCode.INVALID_PARAMETER), described(reply)


async def test_recall_handles_of_another_topic(place: Place) -> None:
    """Brokers find the delayed message by its id alone, unless appendTopicForTimerDeleteKey is on."""
    topic, own = await place.topic("orders", "DELAY"), await place.topic("own", "DELAY")
    async with place.client(ALICE) as alice, place.client(MALLORY) as mallory:
        key = unique("KEY")
        sent = await alice.send(topic, b"delayed", {"UNIQ_KEY": key, "TIMER_DELAY_SEC": "6"})
        handle = RecallHandle.parse(sent.fields["recallHandle"])
        forged = replace(handle, topic=own)
        for name, text in ((topic, handle), (topic, forged), (own, handle), (own, forged)):
            fields = {"producerGroup": "p", "topic": name, "recallHandle": str(text)}
            reply = await mallory.ask(RequestCode.RECALL_MESSAGE, mallory.named(fields))
            # A broker accepts a handle of a message that it does not find.
            assert name == own == text.topic or reply.code != ResponseCode.SUCCESS, described(reply)
        found = await alice.pull(topic, unique("group"), wait=20_000)
        assert [message.body for message in found] == [b"delayed"]


async def test_replies_reach_the_client_that_has_asked(place: Place) -> None:
    """A broker sends them to the connection that has registered the client id last."""
    topic, own = await place.topic("orders"), await place.topic("own")
    name, correlation = unique("10.0.0.1@"), unique("correlation")
    pairs = {"CORRELATION_ID": correlation, "REPLY_TO_CLIENT": name, "TTL": "3000"}
    group = unique("producers")
    async with place.client(ALICE, name) as alice, place.client(MALLORY, name) as mallory:
        for client, known in ((alice, topic), (mallory, own)):
            await client.route(known)
            await client.heartbeat(producers=[group])
        await alice.send(topic, b"question", pairs)
        # A consumer of the question would know its id.
        await mallory.send(own, b"question", pairs)
        async with place.client(ALICE) as replier:
            text = properties.encode({**pairs, "MSG_TYPE": "reply"})
            fields = v2(replier.named(send_fields(topic, text)))
            reply = await replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"answer")
            assert reply.code == ResponseCode.SUCCESS, described(reply)
            assert (await alice.push(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)).body == b"answer"
            await replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"unsolicited")
        for client in (alice, mallory):
            assert not client.pushed(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)


async def test_a_client_does_not_end_the_membership_of_another(place: Place) -> None:
    """Brokers know both clients by one connection of the replica."""
    topic, own = await place.topic("orders"), await place.topic("own")
    group, mine = unique("group"), unique("mine")
    async with (
        place.client(ALICE) as alice,
        place.client(MALLORY) as mallory,
        Client(place.broker, credentials=ADMIN) as admin,
    ):
        await alice.heartbeat({group: [topic]})
        await mallory.heartbeat({mine: [own]}, producers=[mine])
        for fields in (
            {"clientID": alice.client_id, "consumerGroup": group},
            {"clientID": mallory.client_id, "consumerGroup": group},
            {"clientID": alice.client_id, "consumerGroup": group, "producerGroup": mine},
        ):
            await mallory.get(RequestCode.UNREGISTER_CLIENT, fields)
        await mallory.get(RequestCode.UNREGISTER_CLIENT, {"clientID": mallory.client_id, "consumerGroup": mine})
        assert await admin.consumers(group) == [alice.client_id]
        await wait_until(lists(admin, mine), "the own membership having ended")


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["java-remoting", "java-grpc"])
async def test_official_clients_with_a_security_token(place: Place, name: str) -> None:
    """SessionCredentials and StaticSessionCredentialsProvider of the Java clients, with and without their token."""
    topic = await place.topic("orders")

    def run(action: str, count: int, timeout: int, token: str | None) -> tuple[int, str]:
        environment = {
            **os.environ,
            "PEERS_ACCESS_KEY": TEMPORARY.access_key,
            "PEERS_SECRET_KEY": TEMPORARY.secret_key,
        }
        if token is not None:
            environment["PEERS_SECURITY_TOKEN"] = token
        words = (name, action, str(count), "--topic", topic, "--group", f"g-{topic}", "--endpoint", place.address)
        command = [sys.executable, str(PEERS), "client", *words, "--timeout", str(timeout)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
        return done.returncode, (done.stdout + done.stderr)[-3000:]

    status, output = await anyio.to_thread.run_sync(run, "roundtrip", 6, 90, TOKEN)
    assert status == 0, output
    for token in (None, "token-2"):
        status, output = await anyio.to_thread.run_sync(run, "produce", 1, 20, token)
        assert status != 0, output
