"""All operations that need no more than a replica's services."""

from importlib import import_module
from typing import Any

from proxy.operations.operation import Operation

# Modules of this package.
_MODULES = (
    "brokers",
    "client_tools",
    "clients",
    "connections",
    "definitions",
    "deliveries",
    "events",
    "groups.consumer_progress",
    "groups.groups",
    "messages.browsing",
    "messages.dead_letter_purge",
    "messages.dead_letters",
    "messages.message_journey",
    "messages.traces",
    "replica_state",
    "request_table",
    "topic_queues",
    "topics",
    "traffic_history",
    "users",
)
OPERATIONS: list[Operation[Any, Any, Any]] = [
    value
    for module in (import_module(f"{__package__}.{name}") for name in _MODULES)
    for value in vars(module).values()
    if isinstance(value, Operation) and value.run.__module__ == module.__name__
]
