"""Records of a seed as Parquet files, in the layout of the proxy's writer."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from analytics.generator import files
from analytics.schema import CONNECTIONS, REQUESTS
from proxy.observability.records import arrow
from proxy.observability.records.schema import VERSION
from tests.analytics.field import truth
from tests.analytics.field.connections import connections
from tests.analytics.field.incidents import plant
from tests.analytics.field.stage import Stage
from tests.analytics.field.traffic import Columns, grpc, requests
from tests.analytics.field.truth import Planted
from tests.analytics.field.world import QUEUES, Array, World, build

# By operation: the remoting code and the rpc.
_CODES = (
    ("SEND_MESSAGE_V2", "SendMessage"),
    ("PULL_MESSAGE", "ReceiveMessage"),
    ("UPDATE_CONSUMER_OFFSET", "AckMessage"),
    ("CONSUMER_SEND_MSG_BACK", "ChangeInvisibleDuration"),
    ("CONSUMER_SEND_MSG_BACK", "ForwardMessageToDeadLetterQueue"),
    ("HEART_BEAT", "Heartbeat"),
)


def generate(root: Path, seed: int, scale: float = 0.75, most: int = 28) -> list[Planted]:
    """Write the records of a seed and its truth; return the planted incidents."""
    world = build(seed, scale)
    stage = plant(world, most)
    columns = requests(world, stage.scenario)
    rows = _requests(stage, columns)
    _write(root, world, REQUESTS.name, rows)
    minute = columns["time"] / 60e6
    used = columns["op"] != 5
    first, last = np.full(len(world.clients), np.inf), np.full(len(world.clients), -np.inf)
    np.minimum.at(first, columns["client"][used], minute[used])
    np.maximum.at(last, columns["client"][used], minute[used])
    alive = {int(number): (float(first[number]), float(last[number])) for number in np.flatnonzero(np.isfinite(first))}
    _write(root, world, CONNECTIONS.name, _connections(world, connections(world, stage.scenario, alive)))
    truth.save(root, stage.planted, {"seed": seed, "zone": world.zone, "requests": rows.num_rows})
    return stage.planted


def _requests(stage: Stage, columns: Columns) -> pa.Table:
    world = stage.world
    order = np.argsort(columns["time"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    client, op = columns["client"], columns["op"]
    spoken = grpc(world, client).astype(int)
    replica = np.array([each.replica for each in world.clients])[client]
    joining = stage.scenario.joining
    if joining is not None:
        early = (replica == joining.subject) & (columns["time"] < joining.start * 60e6)
        replica = np.where(early, 0, replica)
    topics = columns["topic"]
    sends = op == 0
    body = np.array([topic.body for topic in world.topics])[np.maximum(topics, 0)]
    size = client.size
    queue = columns["queue"]
    arrays = {
        "schema": pa.array(np.full(size, VERSION, dtype=np.int16)),
        "time": pa.array(columns["time"].astype(np.int64) + world.us(0), pa.timestamp("us", tz="UTC")),
        "replica": _named(world.replicas, replica),
        "worker": pa.array(np.zeros(size, dtype=np.int16)),
        "protocol": _named(["remoting", "grpc"], spoken),
        "code": _named([name for pair in _CODES for name in pair], op * 2 + spoken),
        "client_id": _named([each.id for each in world.clients], client),
        "address": _named([each.address for each in world.clients], client),
        "language": _named([each.language for each in world.clients], client),
        "version": _named([each.version for each in world.clients], client),
        "topic": _named([each.name for each in world.topics], topics),
        "group": _named([each.name for each in world.groups], columns["group"]),
        "broker": _named(world.brokers, np.where(queue >= 0, queue // QUEUES, -1)),
        "queue": pa.array((queue % QUEUES).astype(np.int32), mask=queue < 0),
        "messages": pa.array(np.where((op == 2) & (spoken == 0), 0, columns["messages"]).astype(np.int32)),
        "bytes_in": pa.array(np.where(sends, body, 0)),
        "bytes_out": pa.array(np.where(op == 1, body * columns["messages"], 0)),
        "latency_us": pa.array(columns["latency"].astype(np.int64)),
        "broker_us": pa.array((columns["latency"] * 0.9).astype(np.int64), mask=queue < 0),
        "response": pa.array(_response(columns, spoken).astype(np.int32)),
        "ok": pa.array(columns["ok"] == 1),
        "attempt": pa.array(columns["attempt"].astype(np.int32), mask=columns["attempt"] < 1),
        "delay_ms": pa.array(columns["delay"], mask=columns["delay"] < 0),
        "tls": pa.array(np.zeros(size, dtype=bool)),
        "trace_id": pa.nulls(size, pa.string()),
        "key_hash": pa.array(columns["key"] * 7_919_191_919, mask=~sends),
        "weight": pa.array(columns["weight"], mask=columns["weight"] == 1),
    }
    schema = arrow.schema(REQUESTS)
    return pa.table([arrays[name] for name in schema.names], schema=schema)


def _response(columns: Columns, spoken: Array) -> Array:
    """An answer without messages has a code of its own."""
    empty = (columns["op"] == 1) & (columns["messages"] == 0) & (columns["ok"] == 1)
    return np.where(empty, np.array((19, 40401))[spoken], columns["response"])


def _named(names: list[str], place: Array) -> pa.Array:
    mask = place < 0
    indices = pa.array(np.where(mask, 0, place).astype(np.int32), mask=mask)
    return pa.DictionaryArray.from_arrays(indices, names).cast(pa.string())


def _connections(world: World, rows: list[dict[str, Any]]) -> pa.Table:
    common = {"schema": VERSION, "worker": 0, "listener": "main", "tls": False}
    schema = arrow.schema(CONNECTIONS)
    complete = [
        dict.fromkeys(schema.names)
        | common
        | {name: value for name, value in row.items() if name != "minute"}
        | {"time": world.at(row["minute"])}
        for row in rows
    ]
    return pa.Table.from_pylist(complete, schema)


def _write(root: Path, world: World, table: str, rows: pa.Table) -> None:
    """Write one file for each hour."""
    definition = {REQUESTS.name: REQUESTS, CONNECTIONS.name: CONNECTIONS}[table]
    times = rows["time"].cast(pa.int64()).to_numpy()
    bounds = [world.us(minute) for minute in range(0, world.minutes + 60, 60)]
    places = np.searchsorted(times, bounds)
    for hour, (begin, end) in enumerate(pairwise(places)):
        if end > begin:
            start = world.begin + timedelta(hours=hour)
            files.write(root, definition, start, rows.slice(begin, end - begin), files.name("edge-0", 0, start, 0))
