import pytest

from proxy.core.stored_topics import topics_of
from remoting.messages import StoredMessage


@pytest.mark.parametrize(
    ("topic", "origin", "expected"),
    [
        ("orders", "", ("orders",)),
        # Only messages in retry topics have come from others: producers set properties, too.
        ("orders", "other", ("orders",)),
        ("%RETRY%g", "orders", ("%RETRY%g", "orders")),
        ("%RETRY%g_orders", "", ("%RETRY%g_orders", "orders")),
        ("%RETRY%g+orders", "", ("%RETRY%g+orders", "orders")),
        ("%RETRY%other", "", ("%RETRY%other",)),
    ],
)
def test_a_message_has_the_topics_that_it_is_in_and_was_sent_to(
    topic: str, origin: str, expected: tuple[str, ...]
) -> None:
    properties = f"RETRY_TOPIC\x01{origin}\x02" if origin else ""
    assert topics_of(StoredMessage(topic=topic, properties=properties), "g") == expected
