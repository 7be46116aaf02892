"""The behaviour of the store except recovery."""

import subprocess
import sys
from pathlib import Path

import pytest

from proxy.embedded.store import StorageFailed, StoreLocked, UnknownFormat
from proxy.embedded.store.queue import tag_code
from proxy.embedded.store.segment import Segment
from remoting.errors import BodyError
from remoting.messages import decode_message
from tests.proxy.embedded.store.fakes import Clock, abandon, bodies, by_steps, message, open_store


def test_a_second_store_in_a_directory_is_rejected(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StoreLocked, match="in use by another process"):
        open_store(tmp_path)
    program = "import sys; from pathlib import Path; from tests.proxy.embedded.store.fakes import open_store; "
    command = [sys.executable, "-c", f"{program} open_store(Path({str(tmp_path)!r}))"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "StoreLocked" in found.stderr
    store.close()
    open_store(tmp_path).close()


def test_a_later_format_is_rejected(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    (tmp_path / "format").write_text('{"version": 2}')
    with pytest.raises(UnknownFormat, match="later"):
        open_store(tmp_path)
    (tmp_path / "format").write_text("what")
    with pytest.raises(UnknownFormat, match="damaged"):
        open_store(tmp_path)
    (tmp_path / "format").write_text('{"version": 1}')
    open_store(tmp_path).close()


def test_searches_by_key_are_bounded_by_time_and_size(tmp_path: Path) -> None:
    clock = Clock(step=0)
    store = open_store(tmp_path, clock=clock)
    start = clock.now
    for number in range(100):
        clock.now = start + 10 * number
        size = len(store.record(store.append(message(b"%02d" % number, KEYS="k")).commit_log_offset) or b"")

    def found(begin: int, end: int, count: int = 1000, most: int = 1 << 20) -> list[bytes]:
        return [
            decode_message(record).body for record in store.by_key("T", "k", start + begin, start + end, count, most)
        ]

    for _ in range(2):
        assert found(500, 529) == [b"52", b"51", b"50"]
        assert found(501, 510) == [b"51"]
        assert found(-9, 0) == [b"00"]
        assert found(990, 10_000) == [b"99"]
        assert found(991, 10_000) == found(-9, -1) == []
        assert found(0, 10_000, count=2) == found(0, 10_000, most=2 * size) == [b"99", b"98"]
        assert found(0, 10_000, most=1) == [b"99"], "at least one"
        assert len(found(0, 10_000)) == 100
        store.checkpoint()


def test_reads_are_bounded(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(10):
        size = len(store.record(store.append(message(b"%d" % number)).commit_log_offset) or b"")
    assert len(store.read("T", 0, 0, 3, 1 << 20)) == 3
    assert len(store.read("T", 0, 0, 10, 4 * size)) == 4
    assert len(store.read("T", 0, 5, 10, 1)) == 1, "at least one"
    for offset in (-1, 10, 11):
        assert store.read("T", 0, offset, 10, 1 << 20) == []
        assert store.tag_codes("T", 0, offset, 10) == []
    assert store.read("nothing", 0, 0, 10, 1 << 20) == []
    assert store.bounds("nothing", 0) == (0, 0)
    assert store.offset_at("nothing", 0, 0) == 0
    store.close()


def test_the_head_of_a_record_is_read_without_its_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools read the times of thousands of messages, which may have megabytes."""
    store = open_store(tmp_path)
    store.append(message(b"first"))
    store.append(message(bytes(2**20)))
    sizes: list[int] = []
    read = store._log._read

    def count(part: Segment, size: int, position: int) -> bytes:
        sizes.append(size)
        return read(part, size, position)

    for offset in (0, 1):
        [record] = store.read("T", 0, offset, 1, 1)
        monkeypatch.setattr(store._log, "_read", count)
        assert store.head("T", 0, offset, 76) == record[:76]
        monkeypatch.undo()
    assert sizes == [12 + 76] * 2
    assert [store.head("T", 0, offset, 76) for offset in (-1, 2)] == [None, None]
    assert store.head("nothing", 0, 0, 76) is None
    store.close()


def test_record_returns_none_except_at_the_start_of_a_record(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first = store.append(message(b"first"))
    store.table("t").put(b"key", b"value")
    second = store.append(message(b"x" * 10_000))
    places = range(-1, store._log.end + 10)
    found = {place for place in places if store.record(place) is not None}
    assert found == {first.commit_log_offset, second.commit_log_offset}
    store.close()


def test_tags_hash_as_in_java() -> None:
    assert tag_code("TagA") == 2598919
    assert tag_code("polygenelubricants") == -(2**31)
    assert tag_code("主题") == 0x4E3B * 31 + 0x9898
    assert tag_code("😀") == 0xD83D * 31 + 0xDE00


def test_a_message_too_large_for_a_record_changes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(BodyError):
        store.append(message(b"", "T" * 40_000))
    with pytest.raises(BodyError):
        store.append_all([message(b"one"), message(b"two", queue_id=1 << 40)])
    with pytest.raises(BodyError):
        store.table("t").put(b"key", bytes(1 << 27))
    assert list(store.topics()) == []
    assert len(store.table("t")) == 0
    assert store.append(message()).queue_offset == 0
    store.close()


def test_a_dropped_topic_begins_at_offset_zero(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(5):
        store.append(message(b"%d" % number, KEYS="k"))
    store.checkpoint()
    store.drop_topic("T")
    store.drop_topic("unknown")
    assert (list(store.topics()), store.by_key("T", "k", 0, 1 << 60, 9)) == ([], [])
    store.append(message(b"new", KEYS="k"))
    for _ in range(2):
        assert bodies(store) == [b"new"]
        assert len(store.by_key("T", "k", 0, 1 << 60, 9)) == 1
        store.close()
        store = open_store(tmp_path)
    store.close()


def test_nested_transactions_are_one(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(LookupError), store.transaction():  # noqa: PT012
        store.append(message(b"outer"))
        with store.transaction():
            store.append_all([message(b"inner")])
        raise LookupError
    assert list(store.topics()) == []
    with store.transaction():
        assert store.append(message(b"outer")).queue_offset == 0
        assert [each.queue_offset for each in store.append_all([message(b"inner"), message(b"too")])] == [1, 2]
        # A key that is put in a transaction can be removed in it.
        store.table("t").put(b"key", b"value")
        store.table("t").delete(b"key")
    assert bodies(store) == [b"outer", b"inner", b"too"]
    assert len(store.table("t")) == 0
    store.close()


@pytest.mark.parametrize("restart", [False, True])
def test_a_key_deleted_during_its_checkpoint_remains_deleted(tmp_path: Path, restart: bool) -> None:
    store = open_store(tmp_path)
    syncing, checkpoint = by_steps(store)
    table = store.table("t")
    table.put(b"before", b"value")
    store._checkpointer.start_soon()
    table.delete(b"before")
    table.put(b"after", b"value")
    syncing.wait()
    table.delete(b"after")
    while checkpoint.busy:
        assert (list(table.items()), table.get(b"before"), len(table)) == ([], None, 0)
        checkpoint.step()
    if restart:
        syncing.stop()
        abandon(store)
        store = open_store(tmp_path)
        table = store.table("t")
    assert (list(table.items()), table.get(b"before"), len(table)) == ([], None, 0)
    store.close()


def test_a_table_is_read_page_by_page_while_it_changes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = store.table("t")
    for number in range(0, 3000, 2):
        table.put(b"%04d" % number, b"old")
    store.checkpoint()
    for number in range(1, 3000, 2):
        table.put(b"%04d" % number, b"new")
    seen = []
    for key, _ in table.items(b"0100"):
        seen.append(int(key))
        if int(key) == 500:
            store.checkpoint()
            for number in range(450, 600):
                table.delete(b"%04d" % number)
    assert seen == [*range(100, 501), *range(600, 3000)]
    assert len(table) == 3000 - 150
    store.close()


def test_deleted_keys_at_the_front_are_not_read_again(tmp_path: Path) -> None:
    """Timers are deleted in the order of their keys."""
    store = open_store(tmp_path)
    table = store.table("timers")
    for number in range(2000):
        table.put(b"%05d" % number, b"")
    store.checkpoint()
    for number in range(1999):
        assert next(iter(table.items()))[0] == b"%05d" % number
        table.delete(b"%05d" % number)
    assert table._floor >= b"01998"
    table.put(b"00003", b"")
    assert [key for key, _ in table.items()] == [b"00003", b"01999"]
    store.close()


@pytest.mark.parametrize("by_time", [False, True])
def test_removed_segments_advance_the_start_of_queues(tmp_path: Path, by_time: bool) -> None:
    clock = Clock(step=0)
    options = {"retention_time": 10_000} if by_time else {"retention_time": None, "retention_size": 20_000}
    store = open_store(tmp_path, clock=clock, segment_size=5_000, **options)
    store.append(message(b"in a quiet queue", queue_id=1, KEYS="old"))
    store.table("t").put(b"key", b"kept")
    for number in range(500):
        clock.now += 100
        store.append(message(b"%03d" % number, KEYS="k"))
    store.upkeep()
    assert store.bounds("T", 0) == (0, 500), "nothing goes that the index file does not have"
    store.checkpoint()
    store.upkeep()
    first, after = store.bounds("T", 0)
    assert 300 < first < 450
    assert after == 500
    assert store.bounds("T", 1) == (1, 1)
    assert store._log.size < 30_000
    for _ in range(3):
        assert store.bounds("T", 0) == (first, 500)
        assert bodies(store) == [b"%03d" % number for number in range(first, 500)]
        assert store.read("T", 0, first - 1, 1, 100) == []
        assert store.record(0) is None
        assert store.by_key("T", "old", 0, 1 << 60, 9) == []
        assert len(store.by_key("T", "k", 0, 1 << 60, 999)) == 500 - first
        assert store.offset_at("T", 0, 0) == first
        assert store.table("t").get(b"key") == b"kept"
        store.close()
        store = open_store(tmp_path, clock=clock, segment_size=5_000, **options)
    assert store.append(message(queue_id=1)).queue_offset == 1
    rows = store._index._select("SELECT min(id & 4294967295) FROM chunks WHERE id >> 32 = 2")
    assert rows[0][0] == first // 256
    store.close()


def test_a_trimmed_log_without_its_index_needs_the_rebuild_option(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_size=5_000, retention_size=20_000)
    for number in range(1000):
        store.append(message(b"%03d" % number))
    store.table("t").put(b"key", b"value")
    store.checkpoint()
    store.upkeep()
    first = store.bounds("T", 0)[0]
    assert first > 256
    store.close()
    for each in tmp_path.glob("index.db*"):
        each.unlink()
    with pytest.raises(StorageFailed, match="rebuild"):
        open_store(tmp_path)
    store = open_store(tmp_path, rebuild=True)
    assert store.bounds("T", 0) == (first, 1000)
    assert bodies(store) == [b"%03d" % number for number in range(first, 1000)]
    store.close()
    store = open_store(tmp_path)
    assert bodies(store) == [b"%03d" % number for number in range(first, 1000)]
    store.close()


def test_the_last_segment_is_removed_once_it_is_old(tmp_path: Path) -> None:
    clock = Clock(step=0)
    store = open_store(tmp_path, clock=clock, retention_time=10_000, checkpoint_age=1000)
    store.append(message(b"old"))
    for _ in range(4):
        clock.now += 11_000
        store.upkeep()
    assert store.bounds("T", 0) == (1, 1)
    store.close()


def test_store_timestamps_never_decrease(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock=clock)
    first = store.append(message())
    clock.now -= 500
    assert store.append(message()).store_timestamp == first.store_timestamp
    store.close()
    store = open_store(tmp_path, clock=clock)
    assert store.append(message()).store_timestamp == first.store_timestamp
    store.close()


def test_segments_are_read_after_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_size=1)
    for number in range(200):
        store.append(message(b"%d" % number))
    assert len(list((tmp_path / "log").iterdir())) == 200
    assert bodies(store) == [b"%d" % number for number in range(200)]
    store.sync()
    abandon(store)
    store = open_store(tmp_path)
    assert bodies(store) == [b"%d" % number for number in range(200)]
    store.close()


def test_messages_are_read_as_they_were_written(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stored = [
        store.append(message(bytes(size), topic, queue_id))
        for size in (0, 1, 5000, 1 << 20)
        for topic in ("T", "%RETRY%G", "t" * 200)
        for queue_id in (0, 7)
    ]
    for each in stored:
        (record,) = store.read(each.topic, each.queue_id, each.queue_offset, 1, 1)
        assert decode_message(record) == each
    store.close()
