from collections import Counter

from remoting.counts import count_down


def test_a_key_that_no_longer_occurs_is_forgotten() -> None:
    counts = Counter("aab")
    count_down(counts, "a")
    count_down(counts, "b")
    assert list(counts.items()) == [("a", 1)]
