"""Broker settings that change the effect of operations."""

from proxy.operations import broker_requests
from proxy.operations.replica import Replica
from remoting.codes import RequestCode


async def resets_by_itself(replica: Replica, broker: str) -> bool:
    """Return whether a broker resets offsets itself, also of single queues. Before 5.0, clients reset them."""
    return "useServerSideResetOffset=true" in await _settings(replica, broker)


async def reads_old_retry_topics(replica: Replica, broker: str) -> bool:
    """Return whether consumers that pop read `%RETRY%group_topic`, or only `%RETRY%group+topic`."""
    settings = await _settings(replica, broker)
    return "enableRetryTopicV2=true" not in settings or "retrieveMessageFromPopRetryTopicV1=false" not in settings


async def _settings(replica: Replica, broker: str) -> list[str]:
    """Return lines of `key=value`. Raises BrokerRefused, and the errors of `Backend.request`."""
    reply = await broker_requests.ask(replica.core, broker, RequestCode.GET_BROKER_CONFIG, {})
    # The format of Java's Properties.
    return reply.body.decode(errors="replace").splitlines()
