import asyncio

import pytest

from proxy.core.channel import Channel
from proxy.core.remoting_channel import RemotingChannel
from remoting import command as commands
from remoting.codes import GO_AWAY_VERSION
from remoting.flow_control import Limits
from remoting.requests import REQUESTS
from remoting.timeout_wheel import TimeoutWheel
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.fakes import peer
from tests.proxy.messages import complete, heartbeat, java
from tests.proxy.replica import Client, serving, soon

pytestmark = pytest.mark.anyio


def channel(address: str = "192.0.2.7:50000") -> RemotingChannel:
    return RemotingChannel(
        TimeoutWheel(lambda: 0.0), lambda *_: None, lambda _: None, peer(address), Limits(requests=7)
    )


async def test_remoting_channel_has_a_session() -> None:
    one, two = channel(), channel("[2001:db8::7]:50000")
    channels: set[Channel] = {one, two, one}
    assert len(channels) == 2
    assert (one.session.address, two.session.address) == ("192.0.2.7:50000", "[2001:db8::7]:50000")
    assert (one.name, one.limits.requests) == ("192.0.2.7:50000", 7)
    assert one.session.number != two.session.number
    assert one.session.client_id is None
    assert not one.closed
    # Without __dict__, to save memory per idle client.
    assert not hasattr(one, "__dict__")


@pytest.mark.parametrize(
    ("header", "address"), [(b"", None), (b"PROXY TCP4 192.0.2.7 198.51.100.9 51000 8080\r\n", "192.0.2.7:51000")]
)
async def test_remoting_channel_session_holds_the_clients_identity(
    cluster: Cluster, header: bytes, address: str | None
) -> None:
    broker = await cluster.broker()
    async with serving(cluster) as app:
        client = await Client.connect(app)
        transport = client.connection.transport
        assert transport is not None
        if header:
            transport.write(header)
        await client.ask(java(heartbeat("c1", {"g": []}), GO_AWAY_VERSION))
        (served,) = app.channels
        host, port = transport.get_extra_info("sockname")
        assert served.session.address == (address or f"{host}:{port}")
        assert (served.session.client_id, served.session.language) == ("c1", "JAVA")
        assert served.session.version == GO_AWAY_VERSION
        member = app.registry.member(served)
        assert member is not None
        assert member.address == served.session.address
        # It is registered at the brokers as well.
        await client.ask(complete(REQUESTS[310]))
        (sent,) = (command for command in broker.received if command.code == 310)
        assert f"__BORNHOST\1{served.session.address}" in sent.fields["i"]
        await client.close()


async def test_requests_to_a_remoting_channel_reach_the_client(cluster: Cluster) -> None:
    async with serving(cluster) as app:
        client = await Client.connect(app)
        await client.ask(heartbeat())
        (served,) = app.channels
        served.oneway(commands.request(40, {"consumerGroup": "g"}, oneway=True))
        asked = served.request(commands.request(307, {"clientId": "c1"}), 5.0)
        async with asyncio.timeout(30):
            while len(client.pushed) < 2:
                await asyncio.sleep(0.005)
        assert [(command.code, command.is_oneway) for command in client.pushed] == [(40, True), (307, False)]
        client.connection.send(commands.answer(commands.success({"a": "b"}), client.pushed[1].opaque, 0))
        assert (await soon(asked)).fields == {"a": "b"}
        await client.close()
