"""Background tasks and shutdown of a replica: sweeps, certificate reload, drain."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from proxy.app import App
from proxy.backends.cluster import membership as memberships
from proxy.core.client_registry import ConsumerData, ConsumerGroupChange, Groups, Member
from proxy.core.heartbeat import parse
from proxy.core.remoting_channel import RemotingChannel
from proxy.frontends import remoting_frontend
from proxy.replication.heartbeat_sync import HeartbeatSync
from remoting import command as commands
from remoting.codes import GO_AWAY_VERSION, RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost
from remoting.requests import REQUESTS
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.messages import complete, heartbeat, java, request
from tests.proxy.replica import Client, ask_route, certify, serving, soon, stops
from tests.waiting import until

pytestmark = pytest.mark.anyio

_PULL = RequestCode.PULL_MESSAGE
# Seconds; far longer than `serving` waits for the shutdown of a replica.
_LONG = 120


def poll(version: int = GO_AWAY_VERSION) -> RemotingCommand:
    return java(complete(REQUESTS[_PULL], suspendTimeoutMillis="15000", queueOffset="42"), version)


def holding(*codes: int) -> Callable[[RemotingCommand], RemotingCommand | None]:
    """Return the answers of a broker that leaves these codes unanswered."""
    return lambda command: None if command.code in codes else commands.success()


# The sweep.


@pytest.fixture
def frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweep at very short intervals."""
    monkeypatch.setattr(remoting_frontend, "_SWEEP_INTERVAL", 0.02)


def silence(app: App, seconds: float) -> None:
    """Increase the time since the last bytes from each client."""
    for channel in app.channels:
        channel.read_at -= seconds


@pytest.mark.usefixtures("frequent")
async def test_idle_connections_without_in_flight_requests_are_closed(cluster: Cluster) -> None:
    broker = await cluster.broker(answer=holding(_PULL))
    async with serving(cluster, limits={"idle_timeout": 600}) as app:
        polling, idle = await Client.connect(app), await Client.connect(app)
        waiting = polling.connection.request(poll(), 5.0)
        await idle.ask(ask_route("nowhere"))
        await broker.until(lambda server: _PULL in server.codes)
        silence(app, 601)
        await soon(idle.gone.wait())
        # Later sweeps find it as idle as the other one.
        await anyio.sleep(0.1)
        assert not polling.gone.is_set()
        assert app.metrics.connections.causes("remoting") == {"idle": 1}
        pull = next(command for command in broker.received if command.code == _PULL)
        for connection in broker.connections:
            connection.send(commands.answer(commands.success({"at": "last"}), pull.opaque, 0))
        assert (await soon(waiting)).fields == {"at": "last"}
        await soon(polling.gone.wait())
        await until(lambda: not app.channels)
        assert app.metrics.connections.causes("remoting") == {"idle": 2}


@pytest.mark.usefixtures("frequent")
async def test_connection_that_receives_bytes_stays_open(cluster: Cluster) -> None:
    async with serving(cluster, limits={"idle_timeout": 600}) as app:
        busy, idle = await Client.connect(app), await Client.connect(app)
        await idle.ask(ask_route("nowhere"))
        await busy.ask(ask_route("nowhere"))
        silence(app, 400)
        await busy.ask(ask_route("nowhere"))
        silence(app, 400)
        await soon(idle.gone.wait())
        assert not busy.gone.is_set()
        await busy.close()


@pytest.mark.usefixtures("frequent")
async def test_clients_with_unread_responses_are_checked_with_the_timeout_of_the_settings(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    monkeypatch.setattr(RemotingChannel, "check_unread_responses", lambda _, timeout: seen.append(timeout))
    async with serving(cluster, limits={"unread_timeout": 33.0}) as app:
        client = await Client.connect(app)
        await client.ask(ask_route("nowhere"))
        await until(lambda: bool(seen))
        assert set(seen) == {33.0}
        await client.close()


def age(member: Member | None, seconds: float) -> None:
    """Increase the age of the member's last heartbeat."""
    assert member is not None
    for seen in (member.producers, member.consumers):
        seen.update({group: time - seconds for group, time in seen.items()})


@pytest.mark.usefixtures("frequent")
async def test_client_without_heartbeats_leaves_its_groups_and_may_rejoin(cluster: Cluster) -> None:
    broker = await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster) as app:
        silent = await Client.connect(app)
        await silent.ask(heartbeat("c1", {"g": ["orders"]}, ["p"]))
        (channel,) = app.channels
        lively = await Client.connect(app)
        await lively.ask(heartbeat("c2", {"g": ["orders"]}))
        age(app.registry.member(channel), app.settings.client_expiry - 10)
        await anyio.sleep(0.06)
        assert app.registry.consumer_ids("g") == {"c1", "c2"}
        age(app.registry.member(channel), 11)
        await until(lambda: app.registry.consumer_ids("g") == {"c2"})
        await broker.until(lambda server: server.codes.count(RequestCode.UNREGISTER_CLIENT) == 2)
        farewells = [command.fields for command in broker.received if command.code == RequestCode.UNREGISTER_CLIENT]
        assert farewells == [{"clientID": "c1", "consumerGroup": "g"}, {"clientID": "c1", "producerGroup": "p"}]
        # The connection is still open, and a heartbeat registers the client again.
        await silent.ask(heartbeat("c1", {"g": ["orders"]}, ["p"]))
        assert app.registry.consumer_ids("g") == {"c1", "c2"}
        await silent.close()
        await lively.close()


@pytest.mark.usefixtures("frequent")
async def test_member_behind_another_proxy_expires_without_announcements(cluster: Cluster) -> None:
    await cluster.broker()
    async with serving(cluster) as app:
        client = await Client.connect(app)
        await client.ask(heartbeat("ours", {"g": []}))
        theirs = Member(("proxy", "theirs"), "theirs")
        now = asyncio.get_running_loop().time()
        app.registry.heartbeat(theirs, (), {"g": ConsumerData({})}, now)
        await anyio.sleep(0.05)
        assert app.registry.consumer_ids("g") == {"ours", "theirs"}
        age(theirs, app.settings.client_expiry + 1)
        await until(lambda: client.pushed)
        assert app.registry.consumer_ids("g") == {"ours"}
        assert [(push.code, push.fields) for push in client.pushed] == [
            (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
        ]
        await client.close()


# Certificates.


async def trusts(app: App, context: ssl.SSLContext) -> bool:
    """Return whether a new client that trusts this authority is served."""
    try:
        client = await Client.connect(app, context)
    except ssl.SSLError:
        return False
    await client.ask(ask_route("nowhere"))
    await client.close()
    return True


async def test_changed_certificate_is_used_for_new_connections(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, former = certify(tmp_path)
    async with serving(cluster, tls={**files, "reload_interval": 0.05}) as app:
        stays = await Client.connect(app, former)
        _, present = certify(tmp_path)
        async with asyncio.timeout(30):
            while not await trusts(app, present):
                await anyio.sleep(0.02)
        assert not await trusts(app, former)
        assert (await stays.ask(ask_route("nowhere"))).code == 17
        await stays.close()
        # An invalid certificate file does not stop the service.
        caplog.clear()
        files["certificate"].write_text("nonsense")
        await until(lambda: "the changed TLS certificate is not usable" in caplog.text)
        assert str(files["certificate"]) in caplog.text
        assert await trusts(app, present)
        _, latest = certify(tmp_path)
        async with asyncio.timeout(30):
            while not await trusts(app, latest):
                await anyio.sleep(0.02)


async def test_left_group_is_not_registered_again_after_a_lost_broker(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memberships, "_RETRY_DELAY", 0.02)
    broker = await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster) as app:
        client = await Client.connect(app)
        await client.ask(heartbeat("c1", {"g": ["orders"], "h": ["orders"]}, ["p"]))
        farewell = request(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="g", Signature="s")
        await client.ask(farewell)
        assert [command.fields for command in broker.received if command.code == farewell.code] == [farewell.fields]
        broker.received.clear()
        broker.cut()
        await broker.until(lambda server: RequestCode.HEART_BEAT in server.codes)
        told = parse(broker.received[0].body)
        assert (told.client_id, told.groups) == ("c1", Groups(frozenset("p"), frozenset("h")))
        await client.close()


# The drain.


async def test_drain_ends_polls_and_serves_oneways(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough for a slow machine to serve all requests.
    monkeypatch.setattr(remoting_frontend, "_GO_AWAY_SECONDS", 2.0)
    broker = await cluster.broker(answer=holding(_PULL))
    async with serving(cluster, drain_timeout=_LONG) as app:
        new, old = await Client.connect(app), await Client.connect(app)
        told, cut = (
            client.connection.request(poll(version), 5.0)
            for client, version in ((new, GO_AWAY_VERSION + 1), (old, GO_AWAY_VERSION))
        )
        await broker.until(lambda server: server.codes.count(_PULL) == 2)
        stops[app].set()
        assert (await soon(told)).code == 1500
        # Oneway requests still reach the broker after GO_AWAY.
        new.connection.oneway(java(complete(REQUESTS[15]), GO_AWAY_VERSION + 1))
        await broker.until(lambda server: 15 in server.codes)
        old.connection.oneway(java(complete(REQUESTS[15]), GO_AWAY_VERSION))
        await broker.until(lambda server: server.codes.count(15) == 2)
        again = await new.ask(poll(GO_AWAY_VERSION + 1))
        assert (again.code, again.remark) == (1500, "this replica is going away; connect again")
        # Old clients do not support GO_AWAY: they are served and disconnected at the end.
        assert (await old.ask(java(ask_route("nowhere"), GO_AWAY_VERSION))).code == 17
        assert not cut.done()
        # Its poll is answered with "no message found" before the close: Go clients would wait for it otherwise.
        ended = await soon(cut)
        assert (ended.code, ended.fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "42")
        await soon(new.gone.wait())
        assert app.metrics.connections.causes("remoting")["drain"] == 2


def test_go_away_period_is_short() -> None:
    assert 0 < remoting_frontend._GO_AWAY_SECONDS <= 1.0


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the GO_AWAY period short and the close timeout long."""
    monkeypatch.setattr(remoting_frontend, "_GO_AWAY_SECONDS", 0.1)
    monkeypatch.setattr(remoting_frontend, "_CLOSE_TIMEOUT", _LONG)


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("version", [GO_AWAY_VERSION, GO_AWAY_VERSION + 1])
async def test_drain_does_not_wait_for_polls(cluster: Cluster, version: int) -> None:
    broker = await cluster.broker(answer=holding(_PULL))
    async with serving(cluster, drain_timeout=_LONG) as app:
        client = await Client.connect(app)
        waiting = client.connection.request(poll(version), 5.0)
        await broker.until(lambda server: _PULL in server.codes)
        stops[app].set()
        if version > GO_AWAY_VERSION:
            assert (await soon(waiting)).code == 1500
        else:
            assert (await soon(waiting)).code == ResponseCode.PULL_NOT_FOUND
        await soon(client.gone.wait())


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("clients", [0, 3])
async def test_drain_without_requests_is_fast(cluster: Cluster, clients: int) -> None:
    await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    # `serving` does not wait that long for the end.
    async with serving(cluster, drain_timeout=_LONG) as app:
        for number in range(clients):
            client = await Client.connect(app)
            await client.ask(heartbeat(f"c{number}", {"g": ["orders"]}))


@pytest.mark.usefixtures("brisk")
async def test_drain_waits_for_in_flight_requests_only(cluster: Cluster) -> None:
    broker = await cluster.broker(answer=holding(310))
    async with serving(cluster, drain_timeout=_LONG) as app:
        client = await Client.connect(app)
        sending = client.connection.request(complete(REQUESTS[310]), 5.0)
        await broker.until(lambda server: 310 in server.codes)
        stops[app].set()
        await until(lambda: all(channel.pauses for channel in app.channels))
        await anyio.sleep(0.1)
        assert (app.core.active_requests, sending.done()) == (1, False)
        # Further requests of an old client do not extend the drain.
        late = client.connection.request(java(complete(REQUESTS[310]), GO_AWAY_VERSION), 5.0)
        await anyio.sleep(0.05)
        assert broker.codes.count(310) == 1
        for connection in broker.connections:
            for command in broker.received:
                connection.send(commands.answer(commands.success({"finished": "yes"}), command.opaque, 0))
        assert (await soon(sending)).fields == {"finished": "yes"}
        with pytest.raises(ConnectionLost):
            await soon(late)


@pytest.mark.usefixtures("brisk")
async def test_pull_that_arrives_after_reads_paused_is_answered_before_the_close(cluster: Cluster) -> None:
    broker = await cluster.broker(answer=holding(310))
    async with serving(cluster, drain_timeout=_LONG) as app:
        client = await Client.connect(app)
        sending = client.connection.request(complete(REQUESTS[310]), 5.0)
        await broker.until(lambda server: 310 in server.codes)
        stops[app].set()
        await until(lambda: all(channel.pauses for channel in app.channels))
        pulling = client.connection.request(poll(), 5.0)
        for connection in broker.connections:
            for command in broker.received:
                connection.send(commands.answer(commands.success({"finished": "yes"}), command.opaque, 0))
        assert (await soon(sending)).fields == {"finished": "yes"}
        ended = await soon(pulling)
        assert (ended.code, ended.fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "42")
        await soon(client.gone.wait())
        assert _PULL not in broker.codes


@pytest.mark.usefixtures("brisk")
async def test_pulls_are_answered_at_the_end_of_the_drain_timeout(cluster: Cluster) -> None:
    broker = await cluster.broker(answer=holding(310))
    async with serving(cluster, drain_timeout=1.0) as app:
        client = await Client.connect(app)
        sending = client.connection.request(complete(REQUESTS[310]), 60.0)
        await broker.until(lambda server: 310 in server.codes)
        stops[app].set()
        await until(lambda: all(channel.pauses for channel in app.channels))
        pulling = client.connection.request(poll(), 60.0)
        assert (await soon(pulling)).code == ResponseCode.PULL_NOT_FOUND
        with pytest.raises(ConnectionLost):
            await soon(sending)


class Herald:
    """Replaces the heartbeat sync: keeps announced changes until they are sent."""

    def __init__(self) -> None:
        self.news: list[ConsumerGroupChange] = []
        self.sent: list[ConsumerGroupChange] = []

    def announce(self, change: ConsumerGroupChange) -> None:
        self.news.append(change)

    async def flush(self) -> None:
        self.sent, self.news = [*self.sent, *self.news], []


@pytest.mark.usefixtures("brisk")
async def test_departures_are_announced_before_the_end(cluster: Cluster) -> None:
    """Up to a timeout, even if brokers are slow."""
    farewells: list[RemotingCommand] = []

    def answer(command: RemotingCommand) -> RemotingCommand | None:
        if command.code != RequestCode.UNREGISTER_CLIENT:
            return commands.success()
        farewells.append(command)
        return None

    broker = await cluster.broker(answer=answer)
    cluster.topics["orders"] = ["broker-a"]
    herald = Herald()
    async with serving(cluster) as app:
        app._heartbeat_sync = cast(HeartbeatSync, herald)
        client = await Client.connect(app)
        await client.ask(heartbeat("c1", {"g": ["orders"]}))
        stops[app].set()
        await soon(client.gone.wait())
        await broker.until(lambda _: bool(farewells))
        await anyio.sleep(0.15)
        assert [change.joined for change in herald.news] == [True]
        for connection in broker.connections:
            connection.send(commands.answer(commands.success(), farewells[0].opaque, 0))
    assert [(change.group, change.member.client_id, change.joined) for change in herald.sent] == [
        ("g", "c1", True),
        ("g", "c1", False),
    ]


async def test_unregister_is_served_while_draining(cluster: Cluster) -> None:
    held: list[RemotingCommand] = []
    fields: dict[str, Any] = {"clientID": "c1", "consumerGroup": "g"}

    def answer(command: RemotingCommand) -> RemotingCommand | None:
        if command.code != RequestCode.SEND_MESSAGE_V2:
            return commands.success()
        held.append(command)
        return None

    broker = await cluster.broker(answer=answer)
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster, drain_timeout=_LONG) as app:
        client = await Client.connect(app)
        await client.ask(heartbeat("c1", {"g": ["orders"]}))
        sending = client.connection.request(complete(REQUESTS[310]), 5.0)
        await broker.until(lambda _: bool(held))
        stops[app].set()
        await until(lambda: app.core.drain.draining)
        left = await client.ask(java(request(RequestCode.UNREGISTER_CLIENT, **fields), GO_AWAY_VERSION + 1))
        assert left.code == 0
        assert app.registry.consumer_ids("g") == set()
        for connection in broker.connections:
            connection.send(commands.answer(commands.success(), held[0].opaque, 0))
        assert (await soon(sending)).code == 0
