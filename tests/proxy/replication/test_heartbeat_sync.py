import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from proxy.core.client_registry import ClientRegistry, ConsumerData, ConsumerGroupChange, Groups, Member, Role
from proxy.replication import heartbeat_sync as heartbeat_sync
from proxy.replication.announcement import Announcement, Kind, decode
from proxy.replication.heartbeat_sync import HeartbeatSync
from proxy.replication.sync_topic import SyncTopic
from remoting.errors import RemotingError, ServiceUnavailable
from tests.proxy.fakes import Clock, FakeBackend, FakeChannel, peer, settle
from tests.proxy.replication.announcements import PART, PROXY, STAMP, STAMPED, SUBSCRIPTION, java
from tests.waiting import until

pytestmark = pytest.mark.anyio


class FakeTopic(SyncTopic):
    """Records the sent bodies, one list per send.

    `failure`, where set, is what a send raises; `free`, where set, is what it waits for first.
    """

    def __init__(self) -> None:
        super().__init__(FakeBackend(), "sync")
        self.sent: list[list[Announcement]] = []
        self.failure: RemotingError | None = None
        self.free: anyio.Event | None = None
        self.readers: list[Callable[[bytes], None]] = []

    async def send(self, bodies: Sequence[bytes]) -> None:
        if self.free is not None:
            await self.free.wait()
        if self.failure is not None:
            raise self.failure
        self.sent.append([decode(body) for body in bodies])

    async def read(self, take: Callable[[bytes], None]) -> None:
        self.readers.append(take)
        await anyio.sleep_forever()


class Scene:
    """A heartbeat sync between a registry and a topic; `changes` are those announced by other proxies."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.topic = FakeTopic()
        self.registry = ClientRegistry()
        self.changes: list[ConsumerGroupChange] = []
        self.sync = HeartbeatSync(self.topic, self.registry, "host%1%1", self.clock, self.changes.extend)

    def join(self, client_id: str = "ours", group: str = "g", channel: FakeChannel | None = None) -> FakeChannel:
        """Let a local client join a group and announce the change."""
        channel = channel or FakeChannel()
        member = Member(channel, client_id, channel, str(channel.peer.address), "JAVA", 481)
        self.announce(self.registry.heartbeat(member, (), {group: ConsumerData(dict(PART))}, self.clock()))
        return channel

    def leave(self, channel: FakeChannel, group: str = "g") -> None:
        self.announce(self.registry.unregister(channel, Groups(consumers=frozenset({group}))))

    def announce(self, changes: Sequence[ConsumerGroupChange]) -> None:
        for change in changes:
            self.sync.announce(change)

    @property
    def sent(self) -> list[tuple[Kind, str, str]]:
        """Return the sent announcements in order."""
        return [(news.kind, news.group, news.client_id) for batch in self.topic.sent for news in batch]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.sync.run())
        try:
            yield
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(heartbeat_sync, "_BATCH_DELAY", 0.005)
    scene = Scene()
    start = scene.clock.now
    monkeypatch.setattr(heartbeat_sync, "_now", lambda: STAMP + round((scene.clock.now - start) * 1000))
    return scene


# Sending.


async def test_local_changes_are_announced_in_one_batch(scene: Scene) -> None:
    async with scene.running():
        first, _ = scene.join("a"), scene.join("b")
        await until(lambda: scene.sent)
        scene.leave(first)
        await until(lambda: len(scene.sent) > 2)
    assert [len(batch) for batch in scene.topic.sent] == [2, 1]
    assert scene.sent == [(Kind.REGISTER, "g", "a"), (Kind.REGISTER, "g", "b"), (Kind.UNREGISTER, "g", "a")]
    joined, left = scene.topic.sent[0][0], scene.topic.sent[1][0]
    assert joined == replace(left, kind=Kind.REGISTER)
    assert joined == Announcement(
        Kind.REGISTER, "gantry/host%1%1", "g", "a", "192.0.2.7:50000", "JAVA", 481, ConsumerData(dict(STAMPED))
    )


async def test_only_the_latest_change_of_a_connection_is_announced(scene: Scene) -> None:
    channel = scene.join()
    scene.leave(channel)
    scene.join("ours", "another", channel)
    await scene.sync.flush()
    assert scene.sent == [(Kind.UNREGISTER, "g", "ours"), (Kind.REGISTER, "another", "ours")]


async def test_client_that_reconnects_stays_announced(scene: Scene) -> None:
    before = scene.join()
    scene.join(channel=FakeChannel(peer("192.0.2.7:50001")))
    scene.leave(before)
    await scene.sync.flush()
    (batch,) = scene.topic.sent
    assert {(news.kind, news.address) for news in batch} == {
        (Kind.UNREGISTER, "192.0.2.7:50000"),
        (Kind.REGISTER, "192.0.2.7:50001"),
    }


async def test_announcements_of_others_are_not_repeated(scene: Scene) -> None:
    scene.sync.receive(java())
    scene.announce(scene.changes)
    await scene.sync.flush()
    assert scene.topic.sent == []


async def test_many_changes_are_sent_in_batches(scene: Scene) -> None:
    for number in range(130):
        scene.join(f"c{number}", channel=FakeChannel(peer(f"192.0.2.7:{number + 1}")))
    await scene.sync.flush()
    assert [len(batch) for batch in scene.topic.sent] == [64, 64, 2]


async def test_batches_of_large_announcements_stay_below_the_brokers_limit(scene: Scene) -> None:
    """A broker refuses a batch over 4 MiB as a whole: the members of other clients would wait with it."""
    large = ConsumerData({**PART, "subscriptionDataSet": [{**SUBSCRIPTION, "subString": "a" * 150_000}]})
    for number in range(8):
        channel = FakeChannel()
        member = Member(channel, f"client-{number}", channel, str(channel.peer.address), "JAVA", 481)
        scene.announce(scene.registry.heartbeat(member, (), {"g": large}, scene.clock()))
    scene.join("small")
    await scene.sync.flush()
    assert [len(batch) for batch in scene.topic.sent] == [3, 3, 3]
    assert scene.sent[-1][2] == "small"
    await scene.sync.flush()
    assert len(scene.topic.sent) == 3


async def test_failed_announcements_are_sent_later(scene: Scene) -> None:
    leaving, staying = scene.join("leaving"), scene.join("staying", channel=FakeChannel(peer("192.0.2.7:50001")))
    await scene.sync.flush()
    scene.leave(leaving)
    scene.topic.failure = ServiceUnavailable("no broker")
    with pytest.raises(ServiceUnavailable):
        await scene.sync.flush()
    scene.join("staying", "another", staying)
    scene.topic.failure = None
    await scene.sync.flush()
    assert scene.sent[2:] == [(Kind.UNREGISTER, "g", "leaving"), (Kind.REGISTER, "another", "staying")]


async def test_later_change_replaces_a_failed_announcement(scene: Scene) -> None:
    scene.topic.failure = ServiceUnavailable("no broker")
    first, second = scene.join("first"), scene.join("second", channel=FakeChannel(peer("192.0.2.7:50001")))
    with pytest.raises(ServiceUnavailable):
        await scene.sync.flush()
    scene.leave(first)
    scene.leave(second)
    scene.join("second", channel=second)
    scene.topic.failure = None
    await scene.sync.flush()
    assert set(scene.sent) == {(Kind.UNREGISTER, "g", "first"), (Kind.REGISTER, "g", "second")}
    assert len(scene.sent) == 2


async def test_change_during_a_failing_send_replaces_its_announcement(scene: Scene) -> None:
    scene.topic.failure, scene.topic.free = ServiceUnavailable("no broker"), anyio.Event()
    channel = scene.join()
    flushing = asyncio.ensure_future(scene.sync.flush())
    await settle()
    scene.leave(channel)
    scene.topic.free.set()
    with pytest.raises(ServiceUnavailable):
        await flushing
    scene.topic.failure = None
    await scene.sync.flush()
    assert scene.sent == [(Kind.UNREGISTER, "g", "ours")]


async def test_failed_announcements_are_retried_before_the_next_repetition(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_sync, "_RETRY_DELAY", 0.02)
    scene.topic.failure = ServiceUnavailable("no broker")
    async with scene.running():
        channel = scene.join()
        await anyio.sleep(0.03)
        scene.leave(channel)
        scene.topic.failure = None
        await until(lambda: scene.sent)
    assert scene.sent == [(Kind.UNREGISTER, "g", "ours")]


async def test_obsolete_announcements_are_dropped(scene: Scene) -> None:
    scene.topic.failure = ServiceUnavailable("no broker")
    scene.leave(scene.join("old"))
    scene.clock.now += 121
    scene.join("young", channel=FakeChannel(peer("192.0.2.7:50001")))
    with pytest.raises(ServiceUnavailable):
        await scene.sync.flush()
    scene.topic.failure = None
    await scene.sync.flush()
    assert scene.sent == [(Kind.REGISTER, "g", "young")]


async def test_members_are_announced_repeatedly(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Official proxies drop a member without announcements, and messages may be lost."""
    monkeypatch.setattr(heartbeat_sync, "_REPEAT_INTERVAL", 0.02)
    channel = scene.join("a")
    scene.join("a", "another", channel)
    scene.sync.receive(java())
    scene.topic.failure = ServiceUnavailable("no broker")
    async with scene.running():
        await anyio.sleep(0.05)
        assert scene.topic.sent == []
        scene.topic.failure = None
        await until(lambda: len(scene.topic.sent) > 2)
    everybody = {(Kind.REGISTER, "g", "a"), (Kind.REGISTER, "another", "a")}
    assert [{(news.kind, news.group, news.client_id) for news in batch} for batch in scene.topic.sent[:2]] == [
        everybody,
        everybody,
    ]


async def test_unencodable_member_is_left_out(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    channel = FakeChannel(peer("192.0.2.7:50001"))
    member = Member(channel, "odd", channel, str(channel.peer.address))
    async with scene.running():
        scene.announce(scene.registry.heartbeat(member, (), {"g": ConsumerData({"consumeType": deep})}, scene.clock()))
        await until(lambda: "odd cannot be announced" in caplog.text)
        assert scene.topic.sent == []
        scene.join()
        await until(lambda: scene.sent)
    assert scene.sent == [(Kind.REGISTER, "g", "ours")]


# Receiving.


def members(scene: Scene) -> set[str]:
    return scene.registry.consumer_ids("g")


async def test_members_behind_official_proxies_are_registered(scene: Scene) -> None:
    async with scene.running():
        await until(lambda: scene.topic.readers)
        (hear,) = scene.topic.readers
        hear(java())
        assert members(scene) == {"theirs"}
        (member,) = scene.registry.members(Role.CONSUMER, "g")
        assert (member.key, member.channel, member.address) == ((PROXY, "theirs"), None, "192.0.2.7:50000")
        assert (member.language, member.version, member.consumer_data["g"].data) == ("JAVA", 481, STAMPED)
        assert scene.registry.local() == []
        hear(java("UNREGISTER"))
        assert members(scene) == set()
    assert [(change.group, change.joined, change.member.client_id) for change in scene.changes] == [
        ("g", True, "theirs"),
        ("g", False, "theirs"),
    ]


@pytest.mark.parametrize(
    ("bodies", "changes", "left"),
    [
        ([java(), java()], [True], {"theirs"}),
        ([java(), java(subscriptionDataSet=[{**SUBSCRIPTION, "topic": "more"}])], [True, True], {"theirs"}),
        ([java("UNREGISTER")], [], set()),
        ([java(), java("UNREGISTER"), java("UNREGISTER")], [True, False], set()),
        ([java(), java("UNREGISTER", group="another")], [True], {"theirs"}),
        # The same client behind two proxies is two members.
        ([java(), java(localProxyId="b%1%1"), java("UNREGISTER")], [True, True, False], {"theirs"}),
        ([java(localProxyId="gantry/elsewhere%1%1")], [], set()),
        ([java(localProxyId="gantry/host%1%1")], [], set()),
    ],
    ids=["again", "other topics", "unknown", "left twice", "another group", "two proxies", "a Gantry", "ourselves"],
)
async def test_received_announcements_change_groups(
    scene: Scene, bodies: list[bytes], changes: list[bool], left: set[str]
) -> None:
    for body in bodies:
        scene.sync.receive(body)
    assert [change.joined for change in scene.changes] == changes
    assert members(scene) == left


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", java(group=None), java(channelData="x"), java(subscriptionDataSet=[5])]
)
async def test_invalid_messages_are_ignored(scene: Scene, caplog: pytest.LogCaptureFixture, body: bytes) -> None:
    for _ in range(2):
        scene.sync.receive(java())
        scene.sync.receive(body)
    assert members(scene) == {"theirs"}
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "ignoring an invalid announcement on topic sync" in caplog.text


@pytest.mark.parametrize(("age", "heard"), [(-5, True), (120, True), (121, False)])
async def test_obsolete_announcements_are_ignored(scene: Scene, age: int, heard: bool) -> None:
    """A reader that starts with old messages must not restore members that have left since."""
    scene.sync.receive(java(lastUpdateTimestamp=STAMP - age * 1000))
    assert members(scene) == ({"theirs"} if heard else set())
    scene.sync.receive(java(clientId="there"))
    scene.sync.receive(java("UNREGISTER", clientId="there", lastUpdateTimestamp=STAMP - age * 1000))
    assert ("there" in members(scene)) is not heard


@pytest.mark.parametrize("stamp", [None, "yesterday", {}])
async def test_announcement_without_a_timestamp_is_applied(scene: Scene, stamp: object) -> None:
    scene.sync.receive(java(lastUpdateTimestamp=stamp))
    assert members(scene) == {"theirs"}


async def test_remote_member_without_announcements_expires(scene: Scene) -> None:
    scene.sync.receive(java())
    scene.sync.receive(java(group="another"))
    scene.clock.now += 60
    scene.sync.receive(java())
    assert scene.registry.expired(scene.clock()) == []
    scene.clock.now += 60
    ((member, groups),) = scene.registry.expired(scene.clock())
    assert (member.client_id, groups) == ("theirs", Groups(consumers=frozenset({"another"})))
