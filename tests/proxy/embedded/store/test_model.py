"""Model-based test of the store against plain dicts, with restarts and power cuts at any time."""

import random
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.embedded.store import StorageFull
from proxy.embedded.store.durable import DurableStore
from proxy.embedded.store.options import StoreOptions
from proxy.embedded.store.queue import tag_code
from remoting.messages import StoredMessage, decode_message
from tests.proxy.embedded.store.fakes import Clock, Disk, abandon, by_steps, message

TOPICS = strategies.sampled_from(["A", "B"])
QUEUES = strategies.integers(0, 1)
KEYS = strategies.sampled_from([b"", b"a", b"a\0", b"b", b"c\xff", b"d", b"e"])
NAMES = strategies.sampled_from(["x", "y"])
WORDS = strategies.sampled_from(["red", "green", "blue"])


@dataclass
class Model:
    """The expected contents of the store."""

    queues: dict[tuple[str, int], list[StoredMessage]] = field(default_factory=dict)
    tables: dict[str, dict[bytes, bytes]] = field(default_factory=lambda: {"x": {}, "y": {}})

    def copy(self) -> "Model":
        queues = {key: list(queue) for key, queue in self.queues.items()}
        return Model(queues, {name: dict(table) for name, table in self.tables.items()})

    def append(self, stored: StoredMessage) -> None:
        queue = self.queues.setdefault((stored.topic, stored.queue_id), [])
        assert stored.queue_offset == len(queue)
        queue.append(stored)

    def drop(self, topic: str) -> None:
        self.queues = {key: queue for key, queue in self.queues.items() if key[0] != topic}


def observed(store: DurableStore) -> Model:
    """Return the contents of the store."""
    found = Model()
    for topic in store.topics():
        for queue_id in store.queues(topic):
            first, after = store.bounds(topic, queue_id)
            records = store.read(topic, queue_id, first, 1 << 30, 1 << 30)
            assert (first, len(records)) == (0, after)
            found.queues[topic, queue_id] = [decode_message(record) for record in records]
    for name in found.tables:
        found.tables[name] = dict(store.table(name).items())
    return found


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = Clock()
        self.disk = Disk()
        self.model = Model()
        # Possible contents after a power cut: those of the last sync and after each write since, with the log's end.
        self.history = [(0, self.model.copy())]
        self.number = 0
        self.open()

    def open(self) -> None:
        options = StoreOptions(segment_size=2000, checkpoint_changes=12, retention_time=None)
        self.store = DurableStore(self.directory, self.clock, options, self.disk)
        self.syncing, self.checkpoint = by_steps(self.store)

    def written(self) -> None:
        self.history.append((self.store._log.needed, self.model.copy()))
        if self.store._state.pending > 100:
            # The number of changes that wait for the index file is limited.
            self.checkpoint.wait()
            self.store.checkpoint()

    def survived(self) -> None:
        """Note that all contents are durable after a start."""
        self.history = [(self.store._log.needed, self.model.copy())]

    def leave(self) -> None:
        self.checkpoint.stop()
        self.syncing.stop()
        abandon(self.store)

    def new_message(self, topic: str, queue_id: int, word: str, size: int) -> StoredMessage:
        self.number += 1
        body = b"%d " % self.number + b"x" * size
        return message(body, topic, queue_id, TAGS=word, KEYS=f"{word} k{self.number % 3}", UNIQ_KEY=f"u{self.number}")

    @rule(topic=TOPICS, queue_id=QUEUES, word=WORDS, size=strategies.integers(0, 300))
    def append(self, topic: str, queue_id: int, word: str, size: int) -> None:
        self.model.append(self.store.append(self.new_message(topic, queue_id, word, size)))
        self.written()

    @rule(topic=TOPICS, word=WORDS, count=strategies.integers(1, 40))
    def append_all(self, topic: str, word: str, count: int) -> None:
        for stored in self.store.append_all([self.new_message(topic, n % 2, word, n) for n in range(count)]):
            self.model.append(stored)
        self.written()

    @rule(name=NAMES, key=KEYS, value=strategies.binary(max_size=8))
    def put(self, name: str, key: bytes, value: bytes) -> None:
        self.store.table(name).put(key, value)
        self.model.tables[name][key] = value
        self.written()

    @rule(name=NAMES, key=KEYS)
    def delete(self, name: str, key: bytes) -> None:
        self.store.table(name).delete(key)
        self.model.tables[name].pop(key, None)
        self.written()

    @rule(topic=TOPICS, key=KEYS, fails=strategies.booleans(), drops=strategies.booleans())
    def transaction(self, topic: str, key: bytes, fails: bool, drops: bool) -> None:
        after = self.model.copy()
        try:
            with self.store.transaction():
                if drops:
                    self.store.drop_topic(topic)
                    after.drop(topic)
                for queue_id in (0, 1, 0):
                    after.append(self.store.append(self.new_message(topic, queue_id, "red", 9)))
                self.store.table("x").put(key, b"from a transaction")
                after.tables["x"][key] = b"from a transaction"
                self.store.table("y").delete(key)
                after.tables["y"].pop(key, None)
                if fails:
                    raise LookupError
        except LookupError:
            return
        self.model = after
        self.written()

    @rule(topic=TOPICS)
    def drop(self, topic: str) -> None:
        self.store.drop_topic(topic)
        self.model.drop(topic)
        self.written()

    @rule()
    def sync(self) -> None:
        self.store.sync()

    @rule()
    def begin_sync(self) -> None:
        self.store._commit.start()

    @precondition(lambda self: self.syncing.busy)
    @rule()
    def go_on_with_sync(self) -> None:
        self.syncing.step()

    @rule()
    def begin_checkpoint(self) -> None:
        self.store._checkpointer.start_soon()

    @precondition(lambda self: self.checkpoint.busy)
    @rule()
    def go_on_with_checkpoint(self) -> None:
        self.checkpoint.step()

    @precondition(lambda self: self.checkpoint._work is not None)
    @rule()
    def a_checkpoint_fails(self) -> None:
        self.checkpoint.finish(sqlite3.OperationalError("database or disk is full"))
        self.clock.now += 6000

    @rule(room=strategies.integers(0, 1000), topic=TOPICS, key=KEYS)
    def the_disk_is_full(self, room: int, topic: str, key: bytes) -> None:
        self.disk.room = room
        after = self.model.copy()
        try:
            with self.store.transaction():
                for size in range(0, 300, 100):
                    after.append(self.store.append(self.new_message(topic, 0, "blue", size)))
                self.store.table("x").put(key, b"on a full disk")
                after.tables["x"][key] = b"on a full disk"
        except StorageFull:
            return
        finally:
            self.disk.room = None
            # As the upkeep of the next second does.
            self.store._reserve.fill()
        self.model = after
        self.written()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open()
        self.survived()

    @rule()
    def kill(self) -> None:
        self.leave()
        self.open()
        self.survived()

    @rule(seed=strategies.integers(0, 1 << 30))
    def power_cut(self, seed: int) -> None:
        synced = self.store._log.synced
        while len(self.history) > 1 and self.history[1][0] <= synced:
            del self.history[0]
        self.leave()
        self.disk.crash(random.Random(seed))
        self.open()
        self.model = observed(self.store)
        assert self.model in [model for _, model in self.history]
        self.survived()

    @rule(name=NAMES)
    def count(self, name: str) -> None:
        assert len(self.store.table(name)) == len(self.model.tables[name])

    @rule(name=NAMES, start=KEYS, number=strategies.integers(0, 4))
    def scan(self, name: str, start: bytes, number: int) -> None:
        found = [item for item, _ in zip(self.store.table(name).items(start), range(number), strict=False)]
        assert found == sorted(item for item in self.model.tables[name].items() if item[0] >= start)[:number]

    @rule(topic=TOPICS, word=WORDS, count=strategies.integers(1, 50))
    def by_key(self, topic: str, word: str, count: int) -> None:
        messages = [each for (name, _), queue in self.model.queues.items() if name == topic for each in queue]
        having = [each for each in messages if word in (each.get("KEYS") or "")]
        having.sort(key=lambda each: each.commit_log_offset, reverse=True)
        found = [decode_message(record) for record in self.store.by_key(topic, word, 0, 1 << 60, count)]
        assert found == having[:count]

    @rule(topic=TOPICS, queue_id=QUEUES, share=strategies.floats(0, 1))
    def at_a_place(self, topic: str, queue_id: int, share: float) -> None:
        queue = self.model.queues.get((topic, queue_id), [])
        if queue:
            each = queue[int(share * (len(queue) - 1))]
            assert decode_message(self.store.record(each.commit_log_offset) or b"") == each
            assert self.store.tag_codes(topic, queue_id, each.queue_offset, 1) == [tag_code(each.get("TAGS") or "")]
            found = self.store.offset_at(topic, queue_id, each.store_timestamp)
            assert queue[found].store_timestamp == each.store_timestamp
            assert self.store.offset_at(topic, queue_id, queue[-1].store_timestamp + 1) == len(queue)

    @invariant()
    def same(self) -> None:
        assert observed(self.store) == self.model

    def teardown(self) -> None:
        self.leave()
        shutil.rmtree(self.directory)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    deadline=None, max_examples=40, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
