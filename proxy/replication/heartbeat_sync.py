"""The exchange: tells other proxies of our group members, and the registry of theirs."""

import logging
import time
from collections.abc import Callable, Iterable

import anyio

from proxy.core.client_registry import ClientRegistry, ConsumerGroupChange, Groups, Member
from proxy.replication.announcement import GANTRY, Announcement, Kind, announce, decode, encode
from proxy.replication.sync_topic import SyncTopic
from remoting.errors import BodyError, RemotingError

_log = logging.getLogger("gantry.sync")

# Official proxies forget a member after 120 s without news of it.
_REPEAT = 40.0
# Milliseconds after which an announcement says nothing any more: as long as they remember one.
_OLD = 120_000
# Messages of one send.
_BATCH = 64
# Seconds between tries.
_PAUSE = 3.0
# Changes within this time, in seconds, go out together.
_GATHER = 0.02


class HeartbeatSync:
    """Membership shared with other proxies. `changed` gets the changes that came from there."""

    def __init__(
        self,
        topic: SyncTopic,
        registry: ClientRegistry,
        replica: str,
        clock: Callable[[], float],
        changed: Callable[[list[ConsumerGroupChange]], None],
    ) -> None:
        self._topic = topic
        self._registry = registry
        self._proxy_id = f"{GANTRY}{replica}"
        self._clock = clock
        self._changed = changed
        self._news: dict[tuple[str, str, str], Announcement] = {}
        self._wake = anyio.Event()

    def tell(self, change: ConsumerGroupChange) -> None:
        """A member of ours has joined or left: announce it soon."""
        member = change.member
        if member.channel is None:
            return
        kind = Kind.REGISTER if change.joined else Kind.UNREGISTER
        part = member.consumer_data.get(change.group, change.consumer_data)
        self._note(announce(kind, self._proxy_id, change.group, member, part, _now()))
        self._wake.set()

    async def run(self) -> None:
        """HeartbeatSync until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._topic.read, self.hear)
            group.start_soon(self._repeat)
            group.start_soon(self._send)

    async def flush(self) -> None:
        """Send now what is still to be told."""
        while self._news:
            batch = {key: self._news.pop(key) for key in list(self._news)[:_BATCH]}
            bodies = [body for item in batch.values() if (body := _encoded(item)) is not None]
            try:
                if bodies:
                    await self._topic.send(bodies)
            except RemotingError:
                # To be told again, unless there is later news, and for as long as anybody would listen.
                news, now = {**batch, **self._news}, _now()
                self._news = {key: item for key, item in news.items() if item.age(now) <= _OLD}
                raise

    def hear(self, body: bytes) -> None:
        """Take another proxy's announcement."""
        try:
            news = decode(body)
        except BodyError as error:
            _log.warning("a message on %s is no announcement: %s", self._topic.topic, error)
            return
        if news.from_gantry or news.age(_now()) > _OLD:
            return
        if news.kind is Kind.UNREGISTER:
            self._changed(self._registry.unregister(news.key, Groups(consumers=frozenset((news.group,)))))
            return
        member = Member(news.key, news.client_id, None, news.address, news.language, news.version)
        self._changed(self._registry.heartbeat(member, (), {news.group: news.consumer}, self._clock()))

    def _note(self, announcement: Announcement) -> None:
        """Only the latest news of a connection in a group is worth telling; a client may have come back on another."""
        self._news[announcement.group, announcement.client_id, announcement.address] = announcement

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            await anyio.sleep(_GATHER)
            self._wake = anyio.Event()
            try:
                await self.flush()
            except RemotingError as error:
                _log.info("%d announcements have to wait: %s", len(self._news), error)
                await anyio.sleep(_PAUSE)
                self._wake.set()

    async def _repeat(self) -> None:
        while True:
            await anyio.sleep(_REPEAT)
            for announcement in self._all():
                self._note(announcement)
            self._wake.set()

    def _all(self) -> Iterable[Announcement]:
        now = _now()
        for member in self._registry.local():
            for group, part in member.consumer_data.items():
                yield announce(Kind.REGISTER, self._proxy_id, group, member, part, now)


def _encoded(announcement: Announcement) -> bytes | None:
    try:
        return encode(announcement)
    except BodyError as error:
        _log.warning("%s", error)
        return None


def _now() -> int:
    return time.time_ns() // 1_000_000
