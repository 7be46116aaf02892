"""Heartbeat sync: announces local group members to other proxies and registers the members they announce."""

import itertools
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial

import anyio

from proxy.core.client_registry import ClientRegistry, ConsumerGroupChange, Groups, Member
from proxy.replication.announcement import GANTRY_PREFIX, Announcement, Kind, announce, decode, encode
from proxy.replication.sync_topic import SyncTopic
from remoting.errors import BodyError, RemotingError
from remoting.tasks import every

_log = logging.getLogger("gantry.sync")

# Seconds between announcements of all members: official proxies drop a member after 120 s without one.
_REPEAT_INTERVAL = 40.0
# Milliseconds after which an announcement is obsolete, as in the official proxy.
_MAX_AGE = 120_000
# Maximum number of messages per send, and their bytes: brokers refuse a batch of more than 4 MiB as a whole.
_MAX_BATCH = 64
_MAX_BATCH_BYTES = 1024 * 1024
# Seconds until the next attempt after a failed send.
_RETRY_DELAY = 3.0
# Seconds for which changes are collected into one send.
_BATCH_DELAY = 0.02


class HeartbeatSync:
    """Group membership shared with other proxies. `changed` is called with the changes that they announce."""

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
        self._proxy_id = f"{GANTRY_PREFIX}{replica}"
        self._clock = clock
        self._changed = changed
        self._pending: dict[tuple[str, str, str], Announcement] = {}
        self._wake = anyio.Event()

    def announce(self, change: ConsumerGroupChange) -> None:
        """Announce in the background that a local member has joined or left a group."""
        member = change.member
        if member.channel is None:
            return
        kind = Kind.REGISTER if change.joined else Kind.UNREGISTER
        data = member.consumer_data.get(change.group, change.consumer_data)
        self._enqueue(announce(kind, self._proxy_id, change.group, member, data, _now()))
        self._wake.set()

    async def run(self) -> None:
        """Send and receive announcements until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._topic.read, self.receive)
            group.start_soon(partial(every, _REPEAT_INTERVAL, self._repeat, name="announcements of all members"))
            group.start_soon(partial(every, _BATCH_DELAY, self._send, name="announcements", sleep=self._sleep))

    async def flush(self) -> None:
        """Send the pending announcements now. Raises RemotingError; they stay pending then."""
        while self._pending:
            batch: dict[tuple[str, str, str], Announcement] = {}
            bodies: list[bytes] = []
            size = 0
            for key in list(itertools.islice(self._pending, _MAX_BATCH)):
                body = _encoded(self._pending[key])
                size += len(body or b"")
                if bodies and size > _MAX_BATCH_BYTES:
                    break
                batch[key] = self._pending.pop(key)
                if body is not None:
                    bodies.append(body)
            try:
                if bodies:
                    await self._topic.send(bodies)
            except RemotingError:
                # They stay pending unless later ones replace them or they have become obsolete.
                pending, now = {**batch, **self._pending}, _now()
                self._pending = {key: item for key, item in pending.items() if item.age(now) <= _MAX_AGE}
                raise

    def receive(self, body: bytes) -> None:
        """Apply another proxy's announcement to the registry."""
        try:
            announcement = decode(body)
        except BodyError as error:
            _log.warning("ignoring an invalid announcement on topic %s: %s", self._topic.topic, error)
            return
        if announcement.from_gantry or announcement.age(_now()) > _MAX_AGE:
            return
        if announcement.kind is Kind.UNREGISTER:
            self._changed(
                self._registry.unregister(announcement.key, Groups(consumers=frozenset((announcement.group,))))
            )
            return
        member = Member(
            announcement.key,
            announcement.client_id,
            None,
            announcement.address,
            announcement.language,
            announcement.version,
        )
        self._changed(
            self._registry.heartbeat(member, (), {announcement.group: announcement.consumer_data}, self._clock())
        )

    def _enqueue(self, announcement: Announcement) -> None:
        """Replace the pending announcement of the same connection and group; a client may have several connections."""
        self._pending[announcement.group, announcement.client_id, announcement.address] = announcement

    async def _sleep(self, seconds: float) -> None:
        """Sleep until there are announcements, and for the time in which more are collected."""
        await self._wake.wait()
        await anyio.sleep(seconds)
        self._wake = anyio.Event()

    async def _send(self) -> None:
        try:
            await self.flush()
        except RemotingError as error:
            _log.info("sending %d announcements failed, retrying: %s", len(self._pending), error)
            await anyio.sleep(_RETRY_DELAY)
            self._wake.set()

    def _repeat(self) -> None:
        for announcement in self._local_members():
            self._enqueue(announcement)
        self._wake.set()

    def _local_members(self) -> Iterable[Announcement]:
        now = _now()
        for member in self._registry.local():
            for group, data in member.consumer_data.items():
                yield announce(Kind.REGISTER, self._proxy_id, group, member, data, now)


def _encoded(announcement: Announcement) -> bytes | None:
    try:
        return encode(announcement)
    except BodyError as error:
        _log.warning("%s", error)
        return None


def _now() -> int:
    return time.time_ns() // 1_000_000
