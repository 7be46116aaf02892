from proxy.tools.cli.offset_map import OffsetMap, translate
from proxy.tools.cli.reading import Queue

_A, _B = Queue("t", "broker-a", 0), Queue("t", "broker-b", 0)


def _map(messages: dict[int, int], *offsets: int) -> OffsetMap:
    found = OffsetMap(offsets)
    for theirs, ours in messages.items():
        found.add(theirs, ours)
    return found


def test_offset_between_other_messages_is_that_of_the_first_unconsumed_message() -> None:
    # Five messages, 20 of other producers, and five more.
    messages = {theirs: theirs if theirs < 5 else theirs + 20 for theirs in range(10)}
    translated = [translate({_A: _map(messages, offset)}, {_A: offset}) for offset in (0, 2, 4, 5, 9, 10)]
    assert translated == [0, 2, 4, 25, 29, 30]


def test_offset_in_a_gap_of_the_file_is_that_of_the_next_message() -> None:
    messages = _map({10: 0, 11: 1, 40: 2, 41: 3}, 3, 12, 39, 41, 50)
    translated = [translate({_A: messages}, {_A: offset}) for offset in (3, 12, 39, 41, 50)]
    assert translated == [0, 2, 2, 3, 4]


def test_messages_in_another_order_are_repeated_instead_of_lost() -> None:
    assert translate({_A: _map({5: 0, 6: 1, 0: 2, 1: 3}, 1)}, {_A: 1}) == 0


def test_two_source_queues_in_one_queue_give_the_lowest_unconsumed_message() -> None:
    maps = {_A: _map({0: 0, 1: 2, 2: 4}, 1, 3), _B: _map({0: 1, 1: 3, 2: 5}, 2, 3)}
    assert translate(maps, {_A: 1, _B: 2}) == 2
    # The group has consumed all messages of one of them, or of both.
    assert translate(maps, {_A: 3, _B: 2}) == 5
    assert translate(maps, {_A: 3, _B: 3}) == 6


def test_a_source_queue_without_an_offset_is_not_consumed() -> None:
    assert translate({_A: _map({0: 0, 1: 2}, 2), _B: _map({7: 1})}, {_A: 2}) == 1
