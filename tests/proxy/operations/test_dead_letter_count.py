"""New dead letters, by the ends of dead letter queues."""

from proxy.operations.groups.dead_letter_count import DeadLetterCount

ALL = ("a", "b")


def test_first_survey_counts_nothing_and_later_ones_the_increase_at_each_broker() -> None:
    count = DeadLetterCount()
    count.update({("old", "a"): 7, ("old", "b"): 1}, {"old"}, (), ALL)
    assert count.total == 0
    count.update({("old", "a"): 7, ("old", "b"): 1}, {"old"}, (), ALL)
    assert count.total == 0
    count.update({("old", "a"): 9, ("old", "b"): 2, ("new", "a"): 5}, {"old", "new"}, (), ALL)
    assert count.total == 8


def test_deleted_topic_begins_at_0_again() -> None:
    count = DeadLetterCount()
    count.update({("t", "a"): 7}, {"t"}, (), ALL)
    count.update({}, set(), (), ALL)
    count.update({("t", "a"): 2}, {"t"}, (), ALL)
    assert count.total == 2
    # Deleted and created again between two surveys.
    count.update({("t", "a"): 1}, {"t"}, (), ALL)
    assert count.total == 3


def test_old_dead_letters_of_a_broker_or_group_that_was_not_surveyed_are_not_new() -> None:
    count = DeadLetterCount()
    count.update({("t", "a"): 7}, {"t"}, (), ("a",))
    count.update({("t", "a"): 8, ("t", "b"): 3, ("left-out", "a"): 50}, {"t", "left-out"}, {"left-out"}, ALL)
    assert count.total == 1
    count.update({("t", "a"): 8, ("t", "b"): 4, ("left-out", "a"): 51}, {"t", "left-out"}, (), ALL)
    assert count.total == 3


def test_broker_that_is_silent_for_a_while_keeps_its_reference() -> None:
    count = DeadLetterCount()
    count.update({("t", "a"): 7, ("t", "b"): 3}, {"t"}, (), ALL)
    count.update({("t", "a"): 8}, {"t"}, (), ("a",))
    # Its topics are not known meanwhile.
    count.update({}, set(), (), ("a",))
    count.update({("t", "b"): 5}, {"t"}, (), ALL)
    assert count.total == 3
