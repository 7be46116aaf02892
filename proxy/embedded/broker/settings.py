"""A broker's settings: what it is called, what it allows, its times."""

from dataclasses import dataclass

_MINUTE = 60_000
_HOUR = 60 * _MINUTE

# The delay levels 1 to 18 in ms (RocketMQ's messageDelayLevel).
DELAY_LADDER = (
    *(1000 * seconds for seconds in (1, 5, 10, 30)),
    *(_MINUTE * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    _HOUR,
    2 * _HOUR,
)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Named after RocketMQ's broker options where there is one; all times are milliseconds, sizes bytes."""

    name: str = "broker-a"
    cluster: str = "DefaultCluster"
    # What message ids and routes say; an IP address and a port.
    host: str = "127.0.0.1"
    port: int = 10911
    region: str = "DefaultRegion"
    trace: bool = True

    auto_create_topics: bool = True
    auto_create_groups: bool = True
    default_queues: int = 8
    max_message_size: int = 4 * 1024 * 1024
    # Offsets are reset in the broker, or the clients are told to do it.
    server_side_reset: bool = True
    recall: bool = True
    store_replies: bool = True

    delay_ladder: tuple[int, ...] = DELAY_LADDER
    longest_delay: int = 3 * 24 * _HOUR
    timer_precision: int = 1000

    # A half message is first asked about at this age, then at every interval, at most so often.
    transaction_timeout: int = 6000
    transaction_interval: int = 30_000
    transaction_checks: int = 15
    half_life: int = 72 * _HOUR

    # Which name the retry topics of popping groups have: %RETRY%group_topic, or with a +.
    retry_topic_v2: bool = False
    # Per cent of pops that look into the retry topic first; for topics with priorities none.
    retry_probability: int = 20
    most_polls: int = 100_000
    most_polls_per_queue: int = 1024

    member_expiry: int = 120_000
    lock_life: int = 60_000
    # Seconds that a client has to answer what a tool asks of it.
    client_timeout: float = 5.0

    @property
    def address(self) -> str:
        """host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
