"""What an operator may set about the gRPC service."""

from dataclasses import dataclass

from protocol_negotiation.peer import HostPort


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Bounds and times. Sizes are bytes, times seconds; the defaults are the official proxy's where it has them.

    max_body, max_properties, max_property_count: of one message. max_delay: how far ahead a delivery may be set.
    min_polling, max_polling: bounds of a receive's wait. polling_margin: how long before the call's deadline an empty
    receive is answered. auto_renew: whether messages are renewed for push consumers.
    min_invisible, max_invisible: bounds of an invisible duration. renewal: the invisible duration
    of a message that is renewed for its consumer; renewal_limit: how long that goes on. receive_batch: how many
    messages one receive gives at most. publishing_backoff: a producer's attempts, then first and longest pause (ms)
    and factor. validate_message_type: whether a topic's type is enforced. lite_topic_size: of a lite topic's name.
    recovery_limit: the longest orphaned_transaction_recovery_duration. client_expiry: after how long a silent client
    has left. metric_collector: where clients are told to send their metrics (OTLP over gRPC); None: nowhere.
    """

    max_body: int = 4 * 2**20
    max_properties: int = 16 * 2**10
    max_property_count: int = 128
    max_delay: float = 86_400.0
    min_polling: float = 5.0
    max_polling: float = 20.0
    polling_margin: float = 1.0
    min_invisible: float = 10.0
    max_invisible: float = 43_200.0
    auto_renew: bool = True
    renewal: float = 60.0
    renewal_limit: float = 10_800.0
    receive_batch: int = 32
    publishing_backoff: tuple[int, int, int, float] = (3, 10, 1_000, 2.0)
    validate_message_type: bool = True
    lite_topic_size: int = 64
    recovery_limit: float = 3_600.0
    client_expiry: float = 90.0
    metric_collector: HostPort | None = None
