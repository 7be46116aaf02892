"""Recovery of truncated and damaged logs and index files."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.embedded.store import Corrupt
from proxy.embedded.store.durable import DurableStore
from remoting.messages import decode_message
from tests.proxy.embedded.store.fakes import abandon, bodies, message, open_store

Contents = tuple[dict[tuple[str, int], dict[int, bytes]], dict[bytes, bytes]]


def contents(store: DurableStore) -> Contents:
    """Return bodies by queue offset, without damaged ones, and the contents of a table."""
    queues: dict[tuple[str, int], dict[int, bytes]] = {}
    for topic in store.topics():
        for queue_id in store.queues(topic):
            offset, after = store.bounds(topic, queue_id)
            found = queues[topic, queue_id] = {}
            while offset < after:
                try:
                    records = store.read(topic, queue_id, offset, 100, 1 << 20)
                except Corrupt as error:
                    offset = max(error.next_offset or 0, offset + 1)
                    continue
                assert records
                for record in records:
                    each = decode_message(record)
                    assert (each.topic, each.queue_id, each.queue_offset) == (topic, queue_id, offset)
                    found[offset] = each.body
                    offset += 1
    return queues, dict(store.table("t").items())


def log_file(directory: Path) -> Path:
    (path,) = (directory / "log").iterdir()
    return path


def written(directory: Path, checkpoint: bool) -> tuple[list[int], list[Contents]]:
    """Write a small log; return the end of each write, and the contents at that time."""
    store = open_store(directory)
    ends, states = [0], [contents(store)]

    def one(write: Callable[[], object]) -> None:
        write()
        store.sync()
        ends.append(store._log.needed)
        states.append(contents(store))

    def unit() -> None:
        with store.transaction():
            store.append(message(b"in a unit", "A", 1))
            store.table("t").put(b"key", b"in a unit")
            store.append(message(b"in a unit too", "A", 0))

    one(lambda: store.append(message(b"first", "A", 0)))
    one(lambda: store.table("t").put(b"key", b"value"))
    one(lambda: store.append_all([message(b"second", "A", 0), message(b"third", "B", 0)]))
    one(lambda: store.append(message(b"fourth", "A", 0)))
    one(lambda: store.table("t").put(b"key", b"other value"))
    one(unit)
    if checkpoint:
        store.checkpoint()
    abandon(store)
    return ends, states


def test_a_truncated_log_recovers_complete_writes_only(memory_path: Path) -> None:
    ends, states = written(memory_path / "whole", checkpoint=False)
    size = log_file(memory_path / "whole").stat().st_size
    for end in range(size):
        shutil.copytree(memory_path / "whole", memory_path / "torn")
        with log_file(memory_path / "torn").open("r+b") as file:
            file.truncate(end)
        store = open_store(memory_path / "torn")
        whole = max(number for number, each in enumerate(ends) if each <= end)
        assert contents(store) == states[whole]
        assert store.corrupt == 0
        assert store.append(message(b"next", "A", 0)).queue_offset == len(states[whole][0].get(("A", 0), ()))
        assert log_file(memory_path / "torn").stat().st_size == store._log.end
        abandon(store)
        shutil.rmtree(memory_path / "torn")


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_change_of_any_byte_of_the_log_is_detected(
    memory_path: Path, checkpoint: bool, caplog: pytest.LogCaptureFixture
) -> None:
    _, states = written(memory_path / "whole", checkpoint)
    queues, _ = states[-1]
    data = log_file(memory_path / "whole").read_bytes()
    values = {None, b"value", b"other value", b"in a unit"}
    mark = 20
    for place in range(len(data) - mark):
        shutil.copytree(memory_path / "whole", memory_path / "rotten")
        with log_file(memory_path / "rotten").open("r+b") as file:
            file.seek(place)
            file.write(bytes([data[place] ^ 1 << place % 8]))
        caplog.clear()
        store = open_store(memory_path / "rotten")
        found, table = contents(store)
        lost = [
            (where, offset)
            for where, queue in queues.items()
            for offset, body in queue.items()
            if found.get(where, {}).get(offset) != body
        ]
        assert len(lost) <= 1
        assert all(offset not in found.get(where, {}) for where, offset in lost), "served, but not what was written"
        assert table.get(b"key") in values
        if lost:
            assert store.corrupt == 1
            assert [each for each in caplog.records if each.levelno == logging.ERROR and "damaged" in each.getMessage()]
        for where, queue in queues.items():
            if where in found:
                assert store.append(message(b"next", *where)).queue_offset >= max(queue) + 1
        abandon(store)
        shutil.rmtree(memory_path / "rotten")


def test_damage_is_counted_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(tmp_path)
    stored = [store.append(message(b"%d" % number)) for number in range(4)]
    store.sync()
    with log_file(tmp_path).open("r+b") as file:
        file.seek(stored[1].commit_log_offset + 60)
        file.write(b"\xff\xff")
    for _ in range(3):
        assert len(store.read("T", 0, 0, 10, 1 << 20)) == 1
        with pytest.raises(Corrupt) as error:
            store.read("T", 0, 1, 10, 1 << 20)
        assert (error.value.position, error.value.next_offset) == (stored[1].commit_log_offset, 2)
        assert len(store.read("T", 0, 2, 10, 1 << 20)) == 2
    assert store.corrupt == 1
    assert str(stored[1].commit_log_offset) in caplog.text
    assert store.record(stored[1].commit_log_offset) is None
    assert store.by_key("T", "nothing", 0, 1 << 60, 1) == []
    store.close()


def test_adjacent_holes_are_skipped_together(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stored = [store.append(message(b"%d" % number)) for number in range(10)]
    store.sync()
    abandon(store)
    with log_file(tmp_path).open("r+b") as file:
        file.seek(stored[2].commit_log_offset)
        file.write(bytes(stored[7].commit_log_offset - stored[2].commit_log_offset))
    store = open_store(tmp_path)
    with pytest.raises(Corrupt) as error:
        store.read("T", 0, 2, 10, 1 << 20)
    assert error.value.next_offset == 7
    assert [decode_message(record).body for record in store.read("T", 0, 7, 10, 1 << 20)] == [b"7", b"8", b"9"]
    store.close()


def test_offsets_lost_at_the_end_of_a_queue_are_not_reused(tmp_path: Path) -> None:
    """The offset of a lost last message must not be given to another message."""
    store = open_store(tmp_path)
    for number in range(3):
        last = store.append(message(b"%d" % number))
    store.sync()
    abandon(store)
    with log_file(tmp_path).open("r+b") as file:
        file.seek(last.commit_log_offset)
        file.write(b"\0")
    store = open_store(tmp_path)
    assert store.append(message(b"next")).queue_offset > last.queue_offset
    store.close()
    store = open_store(tmp_path)
    assert b"next" in contents(store)[0]["T", 0].values()
    store.close()


def test_a_frame_in_a_body_is_not_recovered_as_a_frame(tmp_path: Path) -> None:
    """The search for intact frames after damage must not find bytes that a producer wrote."""
    store = open_store(tmp_path)
    store.table("t").put(b"key", b"right")
    store.sync()
    abandon(store)
    frame = log_file(tmp_path).read_bytes()
    store = open_store(tmp_path)
    stored = store.append(message(b"forged: " + frame))
    store.append(message(b"after"))
    store.sync()
    abandon(store)
    with log_file(tmp_path).open("r+b") as file:
        file.seek(stored.commit_log_offset)
        file.write(b"\0")
    store = open_store(tmp_path)
    assert bodies_that_are_left(store) == [b"after"]
    assert dict(store.table("t").items()) == {b"key": b"right"}
    store.close()


def bodies_that_are_left(store: DurableStore) -> list[bytes]:
    return list(contents(store)[0]["T", 0].values())


def test_a_lost_index_is_rebuilt(tmp_path: Path) -> None:
    store = open_store(tmp_path, checkpoint_changes=50)
    for number in range(200):
        store.append(message(b"%d" % number, KEYS=f"k{number}"))
        store.table("t").put(b"%d" % (number % 7), b"%d" % number)
    store.close()
    for each in tmp_path.glob("index.db*"):
        each.unlink()
    store = open_store(tmp_path, checkpoint_changes=50)
    assert bodies(store) == [b"%d" % number for number in range(200)]
    assert store.table("t").get(b"3") == b"199"
    assert len(store.by_key("T", "k11", 0, 1 << 60, 9)) == 1
    store.close()


@pytest.mark.parametrize("place", [0, 4096 + 10])
def test_a_damaged_index_is_set_aside(tmp_path: Path, place: int) -> None:
    store = open_store(tmp_path)
    for number in range(20):
        store.append(message(b"%d" % number))
    store.close()
    with (tmp_path / "index.db").open("r+b") as file:
        file.seek(place)
        file.write(b"nonsense" * 500)
    store = open_store(tmp_path)
    assert bodies(store) == [b"%d" % number for number in range(20)]
    assert list(tmp_path.glob("damaged-*"))
    store.close()


def test_a_damaged_value_of_a_table_is_not_returned(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.table("t").put(b"key", b"a value that can be found")
    store.table("t").put(b"other", b"one that is well")
    store.close()
    data = (tmp_path / "index.db").read_bytes()
    (tmp_path / "index.db").write_bytes(data.replace(b"a value that can", b"a value that CAN"))
    store = open_store(tmp_path)
    with pytest.raises(Corrupt):
        store.table("t").get(b"key")
    assert store.table("t").get(b"other") == b"one that is well"
    store.table("t").delete(b"key")
    assert list(store.table("t").items()) == [(b"other", b"one that is well")]
    store.close()


def test_a_damaged_entry_of_a_queue_is_skipped(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stored = [store.append(message(b"%d" % number)) for number in range(600)]
    store.close()
    data = (tmp_path / "index.db").read_bytes()
    entry = stored[300].commit_log_offset.to_bytes(8, "big")
    assert data.count(entry) == 1
    (tmp_path / "index.db").write_bytes(data.replace(entry, stored[301].commit_log_offset.to_bytes(8, "big")))
    store = open_store(tmp_path)
    assert len(store.read("T", 0, 290, 100, 1 << 20)) == 10
    with pytest.raises(Corrupt) as error:
        store.read("T", 0, 300, 100, 1 << 20)
    assert error.value.next_offset == 301
    assert store.offset_at("T", 0, stored[300].store_timestamp) in (300, 301)
    store.close()


def test_a_log_that_lost_its_end_continues_at_its_old_position(tmp_path: Path) -> None:
    """No position and no queue offset is used twice."""
    store = open_store(tmp_path)
    stored = [store.append(message(b"%d" % number)) for number in range(10)]
    store.close()
    with log_file(tmp_path).open("r+b") as file:
        file.truncate(stored[5].commit_log_offset)
    store = open_store(tmp_path)
    after = store.append(message(b"next"))
    assert after.queue_offset == 10
    assert after.commit_log_offset > stored[-1].commit_log_offset
    assert list(contents(store)[0]["T", 0].values()) == [b"0", b"1", b"2", b"3", b"4", b"next"]
    store.close()
    store = open_store(tmp_path)
    assert list(contents(store)[0]["T", 0].values()) == [b"0", b"1", b"2", b"3", b"4", b"next"]
    store.close()
