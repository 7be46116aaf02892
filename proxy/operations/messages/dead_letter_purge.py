"""Deletion of all dead letters of a consumer group."""

from pydantic import Field

from proxy.operations import broker_requests
from proxy.operations.groups.known_groups import check_group
from proxy.operations.operation import REMOTE_TIMEOUT, operation
from proxy.operations.services import AdminServices
from proxy.operations.values import Answer
from remoting.codes import RequestCode
from remoting.errors import TopicNotExist
from remoting.names import dead_letter_topic


class Purged(Answer):
    """The brokers that have deleted a group's dead letter queue; they create it again with the next dead letter."""

    group: str = Field(examples=["orders-billing"])
    brokers: list[str] = Field(examples=[["broker-a"]])


@operation("dead_letters.purge", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def purge(services: AdminServices, group: str) -> Purged:
    """Delete the dead letter queue of a group at every broker. Raises OperationFailed, RemotingError."""
    core = services.replica.core
    topic = dead_letter_topic(group)
    try:
        route = await core.backend.route(topic)
    except TopicNotExist:
        await check_group(services.replica, group)
        return Purged(group=group, brokers=[])
    for broker in route.brokers:
        await broker_requests.ask(core, broker, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    await core.backend.forget_topic(topic)
    return Purged(group=group, brokers=list(route.brokers))
