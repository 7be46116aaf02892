"""Parts of names: the tenant of a topic or a group, the host of a client."""

from analytics.transforms.tenants import DEFAULT


def tenant(name: str) -> str:
    """Return the tenant of a topic's or group's name: its namespace, before a %."""
    namespace, separator, _ = name.partition("%")
    return namespace if separator else DEFAULT


def host(client: str, network: str) -> str:
    """Return the host of a client id in a network: official clients put it before an @, and restart with another id.
    Hosts of several networks may have one private address.
    """
    return f"{client.partition('@')[0]} {network}"
