"""Clients of this replica, without its own channels that represent gRPC producers to brokers."""

from proxy.core.client_registry import Member, Role
from proxy.operations.replica import Replica


def count(replica: Replica) -> int:
    """Return the number of clients that `clients.list_clients` lists: those that have identified themselves, by id."""
    ids = {channel.identity.client_id for channel in replica.channels}
    ids.update(client.client_id for client in replica.grpc.clients)
    return len(ids - {None, ""})


def members(replica: Replica, role: Role, group: str) -> list[Member]:
    """Return the clients in a group."""
    return [member for member in replica.registry.members(role, group) if not member.representative]
