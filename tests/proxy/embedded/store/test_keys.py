"""Keys of messages: how many are kept, and how many messages with one key a search looks at."""

from pathlib import Path

import pytest

from proxy.embedded.store import keys, reader, state
from remoting.messages import decode_message
from tests.proxy.embedded.store.fakes import abandon, message, open_store

_ALWAYS = 1 << 60


def test_the_first_keys_of_a_message_are_found_and_each_is_kept_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    text = " ".join(["twice"] * 2 + [f"k{number}" for number in range(100)])
    store.append(message(KEYS=text, UNIQ_KEY="unique"))
    period = store._state.keys.periods[0]
    assert len(period.entries) == state.MAX_KEYS * keys.ENTRY_SIZE
    for key, count in (("twice", 1), ("k61", 1), ("k62", 0), ("unique", 1)):
        assert len(store.by_key("T", key, 0, _ALWAYS, 9)) == count, key
    store.close()


def test_one_key_repeated_thousands_of_times_is_kept_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append(message(KEYS="a " * 16_000))
    assert len(store._state.keys.periods[0].entries) == keys.ENTRY_SIZE
    assert store._state.pending == 1
    store.close()


def test_messages_with_many_keys_are_written_to_the_index_file_sooner(tmp_path: Path) -> None:
    """The keys bound the memory that changes take, also while the log is read again."""
    many = " ".join(f"k{number}" for number in range(64))
    store = open_store(tmp_path, checkpoint_changes=1 << 30)
    for number in range(100):
        store.append(message(b"%d" % number, KEYS=f"{many} own{number}", UNIQ_KEY=str(number)))
    assert store._state.pending == 100 * 64
    store.sync()
    abandon(store)
    store = open_store(tmp_path, checkpoint_changes=1000)
    assert store._state.pending <= 1000 + 64
    assert len(store.by_key("T", "k7", 0, _ALWAYS, 200)) == 100
    for _ in range(100):
        store.append(message(b"more", KEYS=many))
        store.sync()
    assert store._state.pending <= 2000
    store.close()


def test_a_message_with_ordinary_keys_counts_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for ordinary in (message(), message(KEYS="k"), message(KEYS="k", UNIQ_KEY="u")):
        store.append(ordinary)
    assert store._state.pending == 3
    store.close()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_search_looks_at_the_newest_messages_with_a_key(
    tmp_path: Path, checkpoint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_MAX_POSITIONS", 10)
    store = open_store(tmp_path)
    stored = [store.append(message(b"%d" % number, KEYS="k")) for number in range(30)]
    if checkpoint:
        store.checkpoint()
    stored += [store.append(message(b"%d" % number, KEYS="k")) for number in range(30, 33)]

    def found(begin: int, end: int) -> list[int]:
        records = store.by_key("T", "k", begin, end, 64)
        return [int(decode_message(record).body) for record in records]

    assert found(0, _ALWAYS) == list(range(32, 22, -1))
    assert found(0, stored[24].store_timestamp) == [24, 23]
    assert found(0, stored[9].store_timestamp) == []
    period = store._state.keys.periods[0]
    assert len(period.find(keys.digest("T", "k"), 3)) == 3
    assert len(store._index.key_positions(0, keys.digest("T", "k"), 5)) == (5 if checkpoint else 0)
    store.close()
