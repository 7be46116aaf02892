"""A replica with tenants: two namespaces, and an alias, each on a listener of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.proxy.traffic_rules.replica import Replica, run_replica

# Two tenants, and clients with an alias only, on separate listeners.
RULES = """
[[rule]]
name = "tenant-acme"
kind = "namespace"
namespace = "acme"
match.listeners = ["acme"]

[[rule]]
name = "tenant-umbrella"
kind = "namespace"
namespace = "umbrella"
match.listeners = ["umbrella"]

[[rule]]
name = "renamed"
kind = "alias"
topic = "bookings"
real = "orders"
match.listeners = ["old", "umbrella"]
"""
MAIN, ACME, UMBRELLA, OLD = range(4)
LISTEN = [{"address": "127.0.0.1:0", "name": name} for name in ("main", "acme", "umbrella", "old")]


@asynccontextmanager
async def run_tenants(directory: Path, *topics: str) -> AsyncIterator[Replica]:
    """Run a replica with the rules, the topic `orders` of everyone, and these topics, by their names at the broker."""
    async with run_replica(directory, RULES, listen=LISTEN) as replica:
        await replica.create("orders", "acme%orders", "umbrella%orders", *topics)
        yield replica
