"""All operations that need no more than a replica's services."""

from typing import Any

from proxy.operations import (
    brokers,
    browsing,
    client_tools,
    clients,
    connections,
    consumer_progress,
    dead_letter_purge,
    dead_letters,
    definitions,
    deliveries,
    events,
    groups,
    message_journey,
    replica_state,
    request_table,
    topic_queues,
    topics,
    traces,
    traffic_history,
    users,
)
from proxy.operations.operation import Operation

_MODULES = (
    brokers,
    browsing,
    client_tools,
    clients,
    connections,
    consumer_progress,
    dead_letter_purge,
    dead_letters,
    definitions,
    deliveries,
    events,
    groups,
    message_journey,
    replica_state,
    request_table,
    topic_queues,
    topics,
    traces,
    traffic_history,
    users,
)
OPERATIONS: list[Operation[Any, Any, Any]] = [
    value
    for module in _MODULES
    for value in vars(module).values()
    if isinstance(value, Operation) and value.run.__module__ == module.__name__
]
