"""A replica with an embedded broker: both protocols, the broker's listener, start, restart and shutdown."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.app import App
from proxy.backends.embedded_node import EmbeddedNode, worker_socket
from proxy.embedded.backend import EmbeddedBackend
from proxy.embedded.store import StorageFailed, StoreLocked, StoreUnusable
from proxy.embedded.store.durable import DurableStore
from proxy.settings.model import Settings
from proxy.tools.demo import ORDERLY_GROUP, SAMPLES, TOPICS, sample, welcome
from remoting import messages
from remoting.codes import RequestCode
from tests.cluster.client import Client, create_topic, pull_fields
from tests.cluster.grpc.consumer import Consumer, bodies
from tests.ports import free_port
from tests.proxy.replica import running, soon

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving(directory: Path, drain_timeout: float = 0.2, **embedded: Any) -> AsyncIterator[App]:
    """Run a replica on a free port; at the end it drains and releases its directory."""
    table = {"directory": directory, **embedded}
    async with running(Settings(listen=["127.0.0.1:0"], embedded=table, drain_timeout=drain_timeout)) as app:
        yield app


def address(app: App) -> str:
    return str(app.addresses[0])


async def test_sent_messages_survive_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as app, Client(address(app)) as client:
        await client.heartbeat({"g": ["t"]}, ["p"])
        await client.send("t", b"kept")
        await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, client.named(_offset("g", 1)))
    async with serving(tmp_path) as app, Client(address(app)) as client:
        assert [message.body for message in await client.pull("t", "g")] == [b"kept"]
        reply = await client.get(RequestCode.QUERY_CONSUMER_OFFSET, client.named(_offset("g")))
        assert reply.fields["offset"] == "1"


def _offset(group: str, commit: int | None = None) -> dict[str, object]:
    where: dict[str, object] = {"consumerGroup": group, "topic": "t", "queueId": 0}
    return where if commit is None else {**where, "commitOffset": commit}


async def test_a_message_crosses_the_protocols(tmp_path: Path) -> None:
    port = free_port()
    async with serving(tmp_path, listen=f"127.0.0.1:{port}") as app:
        topic = await create_topic(f"127.0.0.1:{port}", "both")
        async with Client(address(app)) as client, Consumer(address(app), "grpc-group", topic) as consumer:
            await client.send(topic, b"from remoting")
            await consumer.send(b"from grpc")
            received = await consumer.receive_all(2)
            assert sorted(bodies(received)) == [b"from grpc", b"from remoting"]
            await consumer.ack(*received)
            assert await consumer.receive(wait=0.2) == []
            found = [message.body for message in await client.pull(topic, "remoting-group")]
            assert found == [b"from remoting", b"from grpc"]


async def test_a_long_poll_receives_a_later_message(tmp_path: Path) -> None:
    async with serving(tmp_path) as app, Client(address(app)) as client, Client(address(app)) as producer:
        await producer.send("t", b"first")
        polling = asyncio.ensure_future(client.pull("t", "g", offset=1, wait=5000))
        await asyncio.sleep(0.05)
        await producer.send("t", b"second")
        assert [message.body for message in await soon(polling)] == [b"second"]


async def test_a_drain_does_not_wait_for_long_polls(tmp_path: Path) -> None:
    # Both are longer than `serving` waits.
    async with serving(tmp_path, drain_timeout=120) as app, Client(address(app)) as client:
        await client.send("t", b"x")
        client.begin(RequestCode.PULL_MESSAGE, client.named(pull_fields("t", "g", 0, 1, 120_000)))
        async with asyncio.timeout(30):
            while not app.core.in_flight:
                await asyncio.sleep(0.01)


async def test_routes_of_proxy_and_listener_contain_their_own_address(tmp_path: Path) -> None:
    port = free_port()
    async with (
        serving(tmp_path, listen=f"127.0.0.1:{port}") as app,
        Client(address(app)) as client,
        Client(f"127.0.0.1:{port}") as direct,
    ):
        await client.send("t", b"x")
        told = [(await each.route("t"))["brokerDatas"][0]["brokerAddrs"]["0"] for each in (client, direct)]
        assert told == [address(app), f"127.0.0.1:{port}"]
        assert [message.body for message in await direct.pull("t", "g")] == [b"x"]
        # Members at both addresses are in one group.
        await client.heartbeat({"g": ["t"]})
        await direct.heartbeat({"g": ["t"]})
        assert sorted(await direct.consumers("g")) == sorted([client.client_id, direct.client_id])
    with pytest.raises(OSError, match=str(port)):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_message_id_leads_to_the_message(tmp_path: Path) -> None:
    async with serving(tmp_path) as app, Client(address(app)) as client:
        await client.send("t", b"x")
        (message,) = await client.pull("t", "g")
        found = await client.get(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": message.commit_log_offset, "topic": "t"})
        assert [one.body for one in messages.decode_messages(found.body)] == [b"x"]


async def test_metrics_count_messages_and_topics(tmp_path: Path) -> None:
    async with serving(tmp_path) as app, Client(address(app)) as client:
        before = _values(app)
        await client.send("t", b"x" * 1000)
        await client.pull("t", "g")
        after = _values(app)
        assert after["gantry_embedded_topics"] == before["gantry_embedded_topics"] + 1
        assert after["gantry_embedded_log_bytes"] > before["gantry_embedded_log_bytes"] + 1000
        assert (after["put"], after["got"], after["gantry_embedded_corrupt"]) == (1, 1, 0)


def _values(app: App) -> dict[str, float]:
    samples = [one for family in app.metrics.collect() for one in family.samples if "embedded" in one.name]
    return {one.labels.get("direction", one.name): one.value for one in samples}


async def test_a_failed_upkeep_is_logged_and_the_broker_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("proxy.embedded.backend._UPKEEP_INTERVAL", 0.0)
    async with serving(tmp_path) as app, Client(address(app)) as client:
        assert isinstance(app.backend, EmbeddedBackend)
        monkeypatch.setattr(app.backend._store, "upkeep", lambda: 1 / 0)
        async with asyncio.timeout(30):
            while "the background task 'upkeep of the store' failed" not in caplog.text:
                await asyncio.sleep(0.01)
        await client.send("t", b"x")


# Failed starts.


async def test_a_directory_in_use_is_rejected(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(StoreLocked, match="in use by another process"):
            App(Settings(embedded={"directory": tmp_path}))
    async with serving(tmp_path):
        pass


def test_a_directory_of_another_format_is_rejected_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    (tmp_path / "format").write_text("gantry embedded store 999\n")
    assert main(["serve", "--embedded", str(tmp_path), "--listen", "127.0.0.1:0"]) == 1
    assert str(tmp_path) in caplog.text


def test_an_invalid_directory_is_rejected_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    (tmp_path / "file").touch()
    assert main(["serve", "--embedded", str(tmp_path / "file"), "--listen", "127.0.0.1:0"]) == 1
    assert str(tmp_path / "file") in caplog.text


async def test_errors_of_the_store_at_start_and_end_are_for_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(store: DurableStore) -> None:
        raise StorageFailed("the disk failed")

    monkeypatch.setattr(DurableStore, "_recover", fail)
    with pytest.raises(StoreUnusable, match="the disk failed"):
        EmbeddedNode(Settings(), tmp_path)
    monkeypatch.undo()
    node = EmbeddedNode(Settings(), tmp_path)
    monkeypatch.setattr(DurableStore, "checkpoint", fail)
    with pytest.raises(StoreUnusable, match="the disk failed"):
        node.backend.close()


def test_settings_without_cluster_and_directory_are_rejected_with_the_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve"]) == 2
    assert "--embedded DIR" in capsys.readouterr().err


def test_socket_of_the_workers_has_a_short_path(tmp_path: Path) -> None:
    assert worker_socket(Path("/data")) == "unix:/data/workers.sock"
    directory = tmp_path / ("x" * 120)
    directory.mkdir()
    long = worker_socket(directory)
    assert len(long) < 100
    assert Path(long.removeprefix("unix:")).parent.samefile(directory)


# The demo.


async def test_the_demo_has_topics_of_every_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(tmp_path) as app:
        welcome(app, app.admin.url)
        text = capsys.readouterr().out
        assert f"at {address(app)}\n" in text
        assert text.count(address(app)) >= len(SAMPLES) + 1
        assert isinstance(app.backend, EmbeddedBackend)
        topics = app.backend.broker.topics
        assert {name: found.kind for name in TOPICS if (found := topics.get(name))} == TOPICS
        orderly = app.backend.broker.groups.get(ORDERLY_GROUP)
        assert orderly is not None
        assert orderly.data["consumeMessageOrderly"] is True
        # Again at the next start.
        welcome(app, app.admin.url)


@pytest.mark.parametrize("name", SAMPLES.values())
def test_each_sample_contains_the_endpoint(name: str) -> None:
    text = sample(name, "mq.test:99")
    assert "mq.test:99" in text
    assert "127.0.0.1" not in text
    assert '"demo"' in text or "'demo'" in text


def test_python_samples_compile() -> None:
    for name in SAMPLES.values():
        if name.endswith(".py"):
            compile(sample(name, "h:1"), name, "exec")
