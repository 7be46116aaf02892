import pytest

from remoting.names import pop_retry_topics, popped_topic, retry_group, retry_topic


@pytest.mark.parametrize(
    ("name", "group", "topic"),
    [
        ("%RETRY%g_T", "g", "T"),
        ("%RETRY%g+T", "g", "T"),
        ("%RETRY%g_T", "g_T", "%RETRY%g_T"),
        ("%RETRY%other_T", "g", "%RETRY%other_T"),
        ("%RETRY%_T", "", "%RETRY%_T"),
        ("%DLQ%g_T", "g", "%DLQ%g_T"),
        ("T", "g", "T"),
    ],
)
def test_a_pop_retry_topic_belongs_to_a_topic(name: str, group: str, topic: str) -> None:
    assert popped_topic(name, group) == topic


def test_retry_topics_name_their_group() -> None:
    old, new = pop_retry_topics("T", "g_1")
    assert [popped_topic(name, "g_1") for name in (old, new)] == ["T", "T"]
    assert [retry_group(name) for name in (retry_topic("g_1"), new)] == ["g_1", "g_1"]
