"""Settings of a broker."""

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
    # IP address and port in message ids and routes.
    host: str = "127.0.0.1"
    port: int = 10911
    region: str = "DefaultRegion"
    trace: bool = True

    auto_create_topics: bool = True
    auto_create_groups: bool = True
    # Topics and groups beside which requests create no further ones, and those that they may create in a minute.
    max_topics: int = 10_000
    max_groups: int = 10_000
    # Offsets of groups in queues beside which no group begins to consume a topic.
    max_offsets: int = 500_000
    creations_per_client: int = 100
    creations_per_address: int = 1_000
    default_queues: int = 8
    max_message_size: int = 4 * 1024 * 1024
    # Whether the broker resets offsets, or asks the clients to.
    server_side_reset: bool = True
    recall: bool = True
    store_replies: bool = True

    delay_ladder: tuple[int, ...] = DELAY_LADDER
    max_delay: int = 3 * 24 * _HOUR
    timer_precision: int = 1000

    # Age at which a half message is checked first, interval of the checks, and their maximum number.
    transaction_timeout: int = 6000
    transaction_interval: int = 30_000
    transaction_checks: int = 15
    transaction_max_age: int = 72 * _HOUR

    # Whether retry topics of popping groups are named %RETRY%group+topic instead of %RETRY%group_topic.
    retry_topic_v2: bool = False
    # Percentage of pops that read the retry topic first; 0 for topics with priorities.
    retry_probability: int = 20
    # Requests that may wait for messages: pops, of them of one group in one queue; pulls, of them in one queue.
    max_polls: int = 100_000
    max_polls_per_queue: int = 1024
    max_pulls: int = 100_000
    max_pulls_per_queue: int = 4096

    # Locks of queues by clients of groups that consume in order.
    max_locks: int = 100_000

    member_expiry: int = 120_000
    lock_timeout: int = 60_000

    @property
    def address(self) -> str:
        """host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
