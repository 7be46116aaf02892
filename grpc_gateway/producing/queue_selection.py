"""Which message queue a message goes to."""

from functools import lru_cache

from grpc_gateway.status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.properties import java_hash_code
from remoting.routes import TopicRoute

_MULTIPLIER = 2862933555777941757
_64_BITS = (1 << 64) - 1
# Topics whose turn is remembered.
_MAX_TOPICS = 10_000

# A broker's name and a queue id.
Queue = tuple[str, int]


class Turns:
    """Round robin over a topic's queues that take messages."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def next(self, route: TopicRoute, avoid: frozenset[str] = frozenset()) -> Queue:
        """The next queue in turn, if possible on none of the brokers to avoid. Raises Refused (FORBIDDEN)."""
        queues = _writable(route)
        turn = self._turns.get(route.topic, 0)
        if len(self._turns) >= _MAX_TOPICS:
            self._turns.clear()
        self._turns[route.topic] = turn + 1
        chosen = queues[turn % len(queues)]
        if chosen[0] in avoid:
            others = [queue for queue in queues if queue[0] not in avoid]
            if others:
                return others[turn % len(others)]
        return chosen


def of_group(route: TopicRoute, message_group: str) -> Queue:
    """The queue of a message group: the same as behind the official proxy, so that both can serve one topic.

    Raises Refused (FORBIDDEN).
    """
    queues = _writable(route)
    return queues[bucket(message_group, len(queues))]


def _writable(route: TopicRoute) -> tuple[Queue, ...]:
    if not route.writable:
        raise Refused(Code.FORBIDDEN, f"no queue of topic {route.topic} takes messages now")
    return route.writable


@lru_cache(maxsize=65_536)
def bucket(text: str, buckets: int) -> int:
    """Guava's `Hashing.consistentHash` of a text's Java hash code, 0 to `buckets` - 1 (Lamping and Veach, 2014)."""
    state = java_hash_code(text) & _64_BITS
    candidate = 0
    while True:
        state = (state * _MULTIPLIER + 1) & _64_BITS
        following = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if not 0 <= following < buckets:
            return candidate
        candidate = following
