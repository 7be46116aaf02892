"""Request-reply of clients in namespaces, which may have the client ids of other tenants' clients."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from tests.cluster.client import Client, send_fields, v2
from tests.proxy.traffic_rules.replica import Replica, send, until
from tests.proxy.traffic_rules.tenants import ACME, MAIN, UMBRELLA, run_tenants

pytestmark = pytest.mark.anyio

ID = "app@1"
REPLIES = "DefaultCluster_REPLY_TOPIC"
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    async with run_tenants(tmp_path, REPLIES) as replica:
        yield replica


def pairs(correlation: str = "c-1") -> dict[str, str]:
    return {properties.MESSAGE_REPLY_TO_CLIENT: ID, properties.CORRELATION_ID: correlation}


async def join(client: Client, topic: str) -> None:
    await client.route(topic)
    await client.heartbeat(producers=["p"])


async def reply_as(client: Client, group: str = "repliers") -> RemotingCommand:
    text = properties.encode({**pairs(), "MSG_TYPE": "reply"})
    fields = client.named(send_fields(REPLIES, text, producerGroup=group))
    return await client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, v2(fields), b"answer")


@pytest.mark.parametrize("group", ["repliers", "CLIENT_INNER_PRODUCER", ""])
@pytest.mark.parametrize("asked", [True, False])
async def test_a_tenant_cannot_reply_to_the_client_of_another(replica: Replica, group: str, asked: bool) -> None:
    async with replica.remoting(ACME, client_id=ID) as acme, replica.remoting(UMBRELLA) as umbrella:
        await join(acme, "orders")
        if asked:
            await send(acme, "orders", b"question", pairs())
        reply = await reply_as(umbrella, group)
        own = group == "repliers"
        assert reply.code == (ResponseCode.SYSTEM_ERROR if own else ResponseCode.NO_PERMISSION)
        assert not acme.pushed(PUSH)


@pytest.mark.parametrize("asked", [True, False])
async def test_a_reply_reaches_the_client_of_its_own_namespace(replica: Replica, asked: bool) -> None:
    """Whichever client with this id the broker finds first; also if it has asked through another replica."""
    async with (
        replica.remoting(UMBRELLA, client_id=ID) as umbrella,
        replica.remoting(ACME, client_id=ID) as acme,
        replica.remoting(ACME) as replier,
    ):
        await join(umbrella, "bookings")
        await join(acme, "orders")
        if asked:
            # With the same correlation id in both namespaces.
            await send(umbrella, "bookings", b"question", pairs())
            await send(acme, "orders", b"question", pairs())
        reply = await reply_as(replier)
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        (pushed,) = acme.pushed(PUSH)
        assert (pushed.fields["producerGroup"], pushed.body) == ("repliers", b"answer")
        assert not umbrella.pushed(PUSH)


async def test_a_client_without_a_namespace_does_not_take_a_tenants_reply(replica: Replica) -> None:
    async with (
        replica.remoting(MAIN, client_id=ID) as other,
        replica.remoting(ACME, client_id=ID) as acme,
        replica.remoting(ACME) as replier,
    ):
        await join(other, "orders")
        await join(acme, "orders")
        await send(acme, "orders", b"question", pairs())
        assert (await reply_as(replier)).code == ResponseCode.SUCCESS
        assert (len(acme.pushed(PUSH)), len(other.pushed(PUSH))) == (1, 0)


async def test_questions_of_closed_connections_are_forgotten(replica: Replica) -> None:
    async with replica.remoting(ACME, client_id=ID) as acme:
        await join(acme, "orders")
        await send(acme, "orders", b"question", pairs())
        (channel,) = [channel for channel in replica.app.channels if channel.session.client_id == ID]
        assert list(channel.session.asked) == ["c-1"]
    await until(lambda: not channel.session.asked)
