"""How a broker is set, where that decides what operators may ask of it."""

from proxy.operations import operator_channel
from proxy.operations.replica import Replica
from remoting.codes import RequestCode


async def resets_by_itself(replica: Replica, broker: str) -> bool:
    """Whether a broker keeps resets of offsets, of single queues too; before 5.0 all leave them to their clients."""
    return "useServerSideResetOffset=true" in await _settings(replica, broker)


async def reads_old_retry_topics(replica: Replica, broker: str) -> bool:
    """Whether consumers that pop get what is in `%RETRY%group_topic`; with both settings turned, only `group+topic`."""
    found = await _settings(replica, broker)
    return "enableRetryTopicV2=true" not in found or "retrieveMessageFromPopRetryTopicV1=false" not in found


async def _settings(replica: Replica, broker: str) -> list[str]:
    """As `key=value`. Raises BrokerRefused, and what `Backend.request` does."""
    reply = await operator_channel.ask(replica.core, broker, RequestCode.GET_BROKER_CONFIG, {})
    # Java's properties: a line each.
    return reply.body.decode(errors="replace").splitlines()
