"""How a broker is set, where that decides what operators may ask of it."""

from proxy.operations.operator_channel import TIMEOUT, BrokerRefused
from proxy.operations.replica import Replica
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.requests import Action, RequestSpec

# Sent by us alone, so it has no row in the request table.
_GET_BROKER_CONFIG = RequestSpec(RequestCode.GET_BROKER_CONFIG, Action.GET, topic=None, repeatable=True)


async def resets_by_itself(replica: Replica, broker: str) -> bool:
    """Whether a broker keeps resets of offsets, of single queues too; before 5.0 all leave them to their clients."""
    return "useServerSideResetOffset=true" in await _settings(replica, broker)


async def reads_old_retry_topics(replica: Replica, broker: str) -> bool:
    """Whether consumers that pop get what is in `%RETRY%group_topic`; with both settings turned, only `group+topic`."""
    found = await _settings(replica, broker)
    return "enableRetryTopicV2=true" not in found or "retrieveMessageFromPopRetryTopicV1=false" not in found


async def _settings(replica: Replica, broker: str) -> list[str]:
    """As `key=value`. Raises BrokerRefused, and what `Backend.request` does."""
    command = commands.request(_GET_BROKER_CONFIG.code, {})
    reply = await replica.core.backend.request(broker, _GET_BROKER_CONFIG, command, TIMEOUT, None)
    if reply.code != 0:
        raise BrokerRefused(broker, reply.code, reply.remark)
    # Java's properties: a line each.
    return reply.body.decode(errors="replace").splitlines()
