"""Observations for tests of traffic records, and reading of the written files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from protocol_negotiation.peer import HostPort, Peer, Tls
from proxy.core.channel import ChannelProtocol, Identity
from proxy.core.events import Observation
from proxy.observability.records.origin import Origin
from proxy.observability.records.request_columns import RequestColumns

_ORIGIN = Origin("r", 0, 1)


def observation(
    topic: str | None = "orders",
    *,
    started: float = 0.0,
    protocol: ChannelProtocol = "remoting",
    channel: Any = None,
    ok: bool = True,
    tls: bool = False,
    **attributes: Any,
) -> Observation:
    """Return the observation of a send of one message."""
    peer = Peer(HostPort("192.0.2.7", 50_000), HostPort("198.51.100.9", 8080), tls=Tls("TLSv1.3", "x") if tls else None)
    observed = Observation(protocol, "SEND_MESSAGE_V2", 0 if ok else 1, ok, peer, channel, started, 0.0015)
    observed.topic, observed.group, observed.broker, observed.queue = topic, "p", "broker-a", 3
    observed.messages, observed.bytes_in, observed.bytes_out, observed.broker_seconds = 1, 300, 0, 0.001
    for name, value in attributes.items():
        setattr(observed, name, value)
    return observed


@dataclass(eq=False)
class FakeClient:
    """A channel of which only the identity is read."""

    identity: Identity


def client(client_id: str | None, language: str = "JAVA", version: str = "5.3.2") -> FakeClient:
    """Return the channel of an identified client."""
    return FakeClient(Identity(client_id, language, version))


def batch(*observations: Observation, origin: Origin = _ORIGIN, offset: float = 0.0) -> pa.RecordBatch:
    """Return the rows of these requests."""
    columns = RequestColumns()
    for each in observations:
        columns.add(each)
    return columns.batch(origin, offset)


def files(directory: Path, table: str = "*") -> list[Path]:
    """Return the files that readers see."""
    return sorted(directory.glob(f"{table}/date=*/hour=*/[!_.]*"))


def read(directory: Path, table: str) -> list[dict[str, Any]]:
    """Return all rows of a table, in the order of their times."""
    rows: list[dict[str, Any]] = []
    for file in files(directory, table):
        rows += parquet.read_table(file, partitioning=None).to_pylist()
    return sorted(rows, key=lambda row: row["time"])


def column(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
    """Return one column of the rows."""
    return [row[name] for row in rows]
