"""Options of the gRPC messaging service."""

from dataclasses import dataclass
from typing import Literal

from protocol_negotiation.peer import HostPort


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """Limits and times of the messaging service. Sizes are bytes, times seconds.

    The defaults are the official proxy's, where it has the option.

    max_body, max_properties, max_property_count: limits of one message. max_delay: maximum time until a delayed
    delivery. min_polling, max_polling: bounds of the long polling time of a receive. polling_margin: time before the
    call's deadline at which an empty receive is answered. auto_renew: renew the invisible duration of messages that
    push consumers work on. min_invisible, max_invisible: bounds of an invisible duration. renewal: invisible duration
    of a message that is renewed. renewal_limit: maximum time for which a message is renewed. receive_batch: maximum
    number of messages per receive. handle_grace: time after its expiry for which a receipt handle is still accepted,
    for the latency of replies: public test suites expect an error a second after it. publishing_backoff: a producer's
    attempts, then its initial and maximum pause (ms) and multiplier. validate_message_type: enforce the topic's message
    type. lite_topic_size: maximum length of a lite topic's name. recovery_limit: maximum
    orphaned_transaction_recovery_duration. members_per_connection: members of one consumer group that share a client's
    connection. transaction_ids: whether the id of a transaction is the message's, or contains the place of the half
    message. client_expiry: time without a call after which a client is taken for gone.
    metric_collector: OTLP collector (gRPC) that clients send their metrics to; None: client metrics are off.
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
    handle_grace: float = 0.5
    validate_message_type: bool = True
    lite_topic_size: int = 64
    recovery_limit: float = 3_600.0
    members_per_connection: int = 32
    transaction_ids: Literal["message", "place"] = "message"
    client_expiry: float = 90.0
    metric_collector: HostPort | None = None
