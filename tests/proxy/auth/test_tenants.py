"""Namespaces and aliases by user: of signatures and tokens, over both protocols."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.app import App
from remoting.codes import RequestCode, ResponseCode
from remoting.messages import decode_messages
from remoting.signature import Credentials
from tests.cluster.client import Client as BrokerClient
from tests.ports import free_port
from tests.proxy.auth.replica import dialled, replica
from tests.proxy.auth.requests import command
from tests.proxy.auth.rpcs import GrpcClient, rpcs
from tests.proxy.auth.tokens import publish, token
from tests.proxy.auth.users import ALICE, BOB, ROOT, new_topic, signed, write
from tests.proxy.messages import heartbeat
from tests.proxy.replica import Client

pytestmark = pytest.mark.anyio

NO_PERMISSION = int(ResponseCode.NO_PERMISSION)
_USERS = """
[users.alice-1]
secret = "secret-of-alice"
[[users.alice-1.policies]]
resources = ["Topic:acme%*", "Group:acme%*"]
actions = ["Pub", "Sub"]

[users.bob-0001]
secret = "secret-of-bob"
[[users.bob-0001.policies]]
resources = ["Topic:globex%*", "Group:globex%*"]
actions = ["Pub", "Sub"]

[[groups.readers.policies]]
resources = ["Topic:tokens%*", "Group:tokens%*"]
actions = ["Pub", "Sub"]

[users.root-01]
secret = "secret-of-root"
role = "super"
"""
_RULES = """
[[rule]]
name = "acme"
kind = "namespace"
namespace = "acme"
match.users = ["alice-*"]

[[rule]]
name = "globex"
kind = "namespace"
namespace = "globex"
match = { users = ["bob-*"], protocols = ["remoting", "grpc"] }

[[rule]]
name = "invoices"
kind = "alias"
topic = "invoices"
real = "orders"
match.users = ["bob-*"]

[[rule]]
name = "tokens"
kind = "namespace"
namespace = "tokens"
match.users = ["carol"]
"""
_TOPICS = ("orders", "acme%orders", "globex%orders", "tokens%orders")


@asynccontextmanager
async def tenants(folder: Path, **embedded: Any) -> AsyncIterator[App]:
    """A replica whose users have namespaces, with one topic in each."""
    auth = {"users": write(folder / "tenants.toml", _USERS), "jwks": str(publish(folder))}
    rules = {"file": write(folder / "rules.toml", _RULES)}
    async with replica(folder, auth=auth, rules=rules, embedded={"directory": folder / "data", **embedded}) as app:
        client = await Client.connect(app)
        for topic in _TOPICS:
            assert (await client.ask(new_topic(topic))).code == 0
        await client.close()
        yield app


def send(topic: str, credentials: Credentials | None, body: bytes) -> Any:
    made = command(RequestCode.SEND_MESSAGE_V2, b=topic, e="0", i="", n="")
    made.body = body
    return signed(made, credentials)


async def bodies(app: App) -> dict[str, list[bytes]]:
    """Return the stored messages by the brokers' topics, as a user without a namespace reads them."""
    client = await Client.connect(app)
    found = {}
    for topic in _TOPICS:
        pull = command(RequestCode.PULL_MESSAGE, topic=topic, queueOffset="0", maxMsgNums="32", sysFlag="4")
        pull.fields.update(queueId="0", suspendTimeoutMillis="0", subscription="*")
        reply = await client.ask(signed(pull, ROOT))
        found[topic] = [message.body for message in decode_messages(reply.body)] if reply.code == 0 else []
    await client.close()
    return found


async def test_remoting_users_have_the_names_of_their_namespace(tmp_path: Path) -> None:
    async with tenants(tmp_path) as app:
        alice, bob, root = [await Client.connect(app) for _ in range(3)]
        assert (await alice.ask(send("orders", ALICE, b"of alice"))).code == 0
        assert (await bob.ask(send("invoices", BOB, b"of bob"))).code == 0
        assert (await root.ask(send("orders", ROOT, b"of root"))).code == 0
        assert await bodies(app) == {
            "orders": [b"of root"],
            "acme%orders": [b"of alice"],
            "globex%orders": [b"of bob"],
            "tokens%orders": [],
        }
        # Names of others are names in the own namespace, here of a new topic; and the alias hides the real one.
        assert (await alice.ask(send("globex%orders", ALICE, b"x"))).code == 0
        assert (await bodies(app))["globex%orders"] == [b"of bob"]
        assert (await bob.ask(send("orders", BOB, b"x"))).code == NO_PERMISSION
        assert (await alice.ask(signed(heartbeat("c1", {"g": ["orders"]}), ALICE))).code == 0
        assert app.registry.consumer_ids("acme%g") == {"c1"}
        pull = command(RequestCode.PULL_MESSAGE, queueOffset="0", maxMsgNums="1", sysFlag="4", queueId="0")
        pull.fields.update(suspendTimeoutMillis="0", subscription="*")
        reply = await alice.ask(signed(pull, ALICE))
        assert [(message.topic, message.body) for message in decode_messages(reply.body)] == [("orders", b"of alice")]
        for client in (alice, bob, root):
            await client.close()


async def test_a_connection_keeps_the_names_of_its_first_user(tmp_path: Path) -> None:
    async with tenants(tmp_path) as app:
        client = await Client.connect(app)
        # Senders without valid credentials choose nothing.
        assert (await client.ask(send("orders", None, b"x"))).code == NO_PERMISSION
        assert (await client.ask(send("orders", ALICE, b"first"))).code == 0
        for other in (BOB, ROOT):
            reply = await client.ask(send("orders", other, b"x"))
            assert (reply.code, "another user" in (reply.remark or "")) == (NO_PERMISSION, True)
        assert (await client.ask(send("orders", ALICE, b"second"))).code == 0
        assert (await bodies(app))["acme%orders"] == [b"first", b"second"]
        await client.close()


async def test_grpc_users_of_signatures_and_tokens_have_the_names_of_their_namespace(tmp_path: Path) -> None:
    bearer = token(exp=int(time.time()) + 600)
    async with tenants(tmp_path) as app, dialled(app) as channel:
        carol = GrpcClient(channel, None)
        carol.metadata = (*carol.metadata, ("authorization", f"Bearer {bearer}"))
        for caller, body in ((GrpcClient(channel, ALICE), b"of alice"), (carol, b"of carol")):
            sent = rpcs()["SendMessage"]
            sent.messages[0].body = body
            assert await caller.call("SendMessage", sent) == Code.OK
            receive = rpcs()["ReceiveMessage"]
            receive.invisible_duration.seconds = 30
            assert await caller.call("ReceiveMessage", receive) == Code.OK
        assert await bodies(app) == {
            "orders": [],
            "acme%orders": [b"of alice"],
            "globex%orders": [],
            "tokens%orders": [b"of carol"],
        }


async def test_names_at_the_embedded_brokers_own_listener(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    async with tenants(tmp_path, listen=listen) as app:
        async with BrokerClient(listen) as alice, BrokerClient(listen) as root:
            sent = send("orders", ALICE, b"of alice")
            assert (await alice.ask(sent.code, dict(sent.fields), sent.body)).code == 0
            # Requests that only this listener serves, whose names cannot be rewritten.
            listed = command(RequestCode.GET_ALL_TOPIC_CONFIG)
            for client, credentials, code in ((alice, ALICE, None), (root, ROOT, 0)):
                reply = await client.ask(listed.code, dict(signed(listed.copy(), credentials).fields))
                assert (reply.code == 0) == (code == 0), reply.remark
        assert (await bodies(app))["acme%orders"] == [b"of alice"]
