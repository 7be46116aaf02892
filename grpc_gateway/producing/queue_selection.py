"""Selection of the message queue of a message."""

from functools import lru_cache
from typing import Final

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.messages import Permission
from remoting.properties import java_hash_code
from remoting.routes import TopicRoute

_MULTIPLIER: Final = 2862933555777941757
_64_BITS = (1 << 64) - 1
# Topics with a round-robin position.
_MAX_TOPICS: Final = 10_000

# Broker name and queue id.
Queue = tuple[str, int]


class RoundRobin:
    """Round-robin selection among the writable queues of each topic."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}

    def next(self, route: TopicRoute, avoid: frozenset[str] = frozenset()) -> Queue:
        """Return the next queue, if possible on another broker than those to avoid. Raises Refused."""
        queues = _writable(route)
        position = self._positions.get(route.topic, 0)
        if len(self._positions) >= _MAX_TOPICS:
            self._positions.clear()
        self._positions[route.topic] = position + 1
        chosen = queues[position % len(queues)]
        if chosen[0] in avoid:
            others = [queue for queue in queues if queue[0] not in avoid]
            if others:
                return others[position % len(others)]
        return chosen


def queue_of_sharding_key(route: TopicRoute, sharding_key: str) -> Queue:
    """Return the queue of a message group or lite topic. The official proxy selects the same: both can serve one topic.

    It uses the lite topic of a message without a message group (SendMessageActivity.SendMessageQueueSelector), and all
    messages of a lite topic are in one queue. Raises Refused.
    """
    queues = _writable(route)
    return queues[consistent_hash(sharding_key, len(queues))]


def _writable(route: TopicRoute) -> tuple[Queue, ...]:
    if not route.writable:
        if any(queues.write and queues.permission & Permission.WRITE for queues in route.queues):
            # The official proxy refuses these with FORBIDDEN too, but another attempt may find the new master.
            raise Refused(Code.HA_NOT_AVAILABLE, f"no broker with queues of topic {route.topic} has a master now")
        raise Refused(Code.FORBIDDEN, "no writable queue")
    return route.writable


@lru_cache(maxsize=65_536)
def consistent_hash(text: str, buckets: int) -> int:
    """Return Guava's `Hashing.consistentHash` of a text's Java hash code: 0 to `buckets` - 1.

    The algorithm is the jump consistent hash of Lamping and Veach, 2014.
    """
    state = java_hash_code(text) & _64_BITS
    candidate = 0
    while True:
        state = (state * _MULTIPLIER + 1) & _64_BITS
        next_candidate = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if not 0 <= next_candidate < buckets:
            return candidate
        candidate = next_candidate
