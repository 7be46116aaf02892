"""Replicas with gRPC settings that suit scenarios of seconds, their metrics and traffic records."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import anyio.to_thread
import orjson

from tests.cluster.client import Client, unique
from tests.cluster.servers import HOST, Cluster
from tests.ports import free_port

# UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, which only tools send.
_CREATE_GROUP = 200
# Seconds of a renewal: the minimum.
RENEWAL = 10


async def create_group(cluster: Cluster, **settings: object) -> str:
    """Create a consumer group with a unique name, and return the name."""
    name = unique("group")
    async with Client(cluster.broker) as client:
        await client.get(_CREATE_GROUP, body=orjson.dumps({"groupName": name, **settings}))
    return name


@dataclass(frozen=True)
class Product:
    """Settings of one replica, as the product has them: port, rules, metrics and traffic records.

    transport: that of `grpc.transport`. rules: TOML of its traffic rules.
    """

    directory: Path
    transport: str
    rules: str = ""
    renewal: int = RENEWAL
    metrics: int = field(default_factory=free_port)

    @property
    def records(self) -> Path:
        """Directory of the traffic records."""
        return self.directory / "traffic"

    @property
    def config(self) -> str:
        """The settings as TOML."""
        rules = self.directory / "rules.toml"
        rules.write_text(self.rules)
        return f"""
            tools = "all"
            metrics_listen = "{HOST}:{self.metrics}"

            [grpc]
            transport = "{self.transport}"
            min_polling = 0.1
            min_invisible = 1.0
            renewal = {self.renewal}

            [rules]
            file = "{rules}"

            [traffic]
            directory = "{self.records}"
            interval = 1
        """

    async def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's series with these labels."""
        return await anyio.to_thread.run_sync(self._metric, name, labels)

    def _metric(self, name: str, labels: dict[str, str]) -> float:
        with urlopen(f"http://{HOST}:{self.metrics}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        rows = re.findall(rf"^{name}(\{{.*\}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for found, value in rows if all(label in found for label in wanted))


@dataclass(frozen=True)
class Service:
    """A running replica: its address for clients, and its settings."""

    address: str
    product: Product
