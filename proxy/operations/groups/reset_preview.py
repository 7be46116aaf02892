"""The effect of an offset reset, computed without moving the group."""

import asyncio
from collections.abc import Mapping

from proxy.operations import broker_requests
from proxy.operations.failures import conflict, not_found
from proxy.operations.groups.offset_table import QueueKey, progress
from proxy.operations.messages import stored_messages
from proxy.operations.services import AdminServices
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.routes import TopicRoute

# Queues that are asked at the same time.
_MAX_CONCURRENT = 16


async def current_offsets(
    services: AdminServices, group: str, topic: str, brokers: tuple[str, ...]
) -> dict[QueueKey, int]:
    """Return the offsets of a group in a topic; queues of brokers without an answer are left out."""
    fields = {"consumerGroup": group, "topic": topic}
    code = RequestCode.GET_CONSUME_STATS
    core = services.replica.core
    replies = await asyncio.gather(
        *(broker_requests.ask(core, broker, code, dict(fields)) for broker in brokers), return_exceptions=True
    )
    offsets = {}
    for reply in replies:
        if isinstance(reply, RemotingError):
            continue
        if isinstance(reply, BaseException):
            raise reply
        offsets.update({row.key: row.consumed for row in progress(reply.body)})
    return offsets


async def check_target(services: AdminServices, route: TopicRoute, key: QueueKey, offset: int) -> None:
    """Check the queue and the offset of a reset as brokers do. Raises OperationFailed and RemotingError."""
    queues = next((queues for queues in route.queues if queues.broker == key.broker), None)
    if queues is None:
        raise not_found(f"the broker {key.broker} does not have the topic {key.topic}")
    if key.queue >= max(queues.read, queues.write):
        raise conflict(f"topic {key.topic} has no queue {key.queue} at the broker {key.broker}")
    first, end = await stored_messages.bounds(services.replica, key.broker, key.topic, key.queue)
    # Brokers accept the offset after the end (AdminBrokerProcessor.resetOffsetInner).
    if not first <= offset <= end + 1:
        place = f"queue {key.queue} of topic {key.topic} at the broker {key.broker}"
        raise conflict(f"offset {offset} is not in the range {first} to {end} of {place}")


async def target_offsets(
    services: AdminServices, route: TopicRoute, topic: str, timestamp: int
) -> Mapping[QueueKey, int]:
    """Return the offset of each queue to which a reset to this time would move a group.

    timestamp: ms since 1970; 0: the first message; -1: after the last. Raises RemotingError.
    """
    limit = asyncio.Semaphore(_MAX_CONCURRENT)
    keys = [QueueKey(topic, queues.broker, number) for queues in route.queues for number in range(queues.readable)]

    async def look(key: QueueKey) -> int:
        async with limit:
            first, end = await stored_messages.bounds(services.replica, key.broker, topic, key.queue)
            if timestamp <= 0:
                return first if timestamp == 0 else end
            found = await stored_messages.find_stored_at(services.replica, key.broker, topic, key.queue, timestamp)
            return min(max(found, first), end)

    offsets = await asyncio.gather(*map(look, keys))
    return dict(zip(keys, offsets, strict=True))
