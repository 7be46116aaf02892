"""Generation of files from a plan: hours are independent, so several processes can share them."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

from analytics.generator.events import Row, events
from analytics.generator.files import name, write
from analytics.generator.incidents import plant_incidents
from analytics.generator.plan import Plan
from analytics.generator.requests import Array, Columns, Scene, hour_of
from analytics.generator.truth import Incident, Truth
from analytics.generator.world import BROKERS, REPLICAS, World, build
from proxy.observability.records.arrow import schema
from proxy.observability.records.schema import CONNECTIONS, MEMBERS, REQUESTS, VERSION, Table


@dataclass(frozen=True, slots=True)
class _Hour:
    """The work for one hour."""

    root: Path
    plan: Plan
    number: int


def generate(root: Path, plan: Plan, processes: int = 1) -> Truth:
    """Write the three tables and truth.json under `root`. Raises FileExistsError if there are records already."""
    for table in (REQUESTS, CONNECTIONS, MEMBERS):
        if (root / table.name).exists():
            raise FileExistsError(f"{root / table.name} is there already: choose an empty directory")
    root.mkdir(parents=True, exist_ok=True)
    world, incidents = _setting(plan)
    hours = [_Hour(root, plan, number) for number in range(plan.hours)]
    if processes == 1:
        rows = sum(map(_write_hour, hours))
    else:
        # Not forked: the parent may have threads of a Spark session or of Arrow.
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            rows = sum(pool.map(_write_hour, hours, chunksize=4))
    connections, members = events(world, plan, incidents)
    _write_events(root, CONNECTIONS, connections)
    _write_events(root, MEMBERS, members)
    counts = {REQUESTS.name: rows, CONNECTIONS.name: len(connections), MEMBERS.name: len(members)}
    truth = Truth(plan.seed, plan.begin, plan.end, counts, incidents)
    truth.save(root)
    return truth


@lru_cache(maxsize=1)
def _setting(plan: Plan) -> tuple[World, tuple[Incident, ...]]:
    world = build(plan.tenants, plan.seed)
    return world, plant_incidents(world, plan)


@lru_cache(maxsize=1)
def _scene(plan: Plan) -> Scene:
    world, incidents = _setting(plan)
    return Scene(world, plan, incidents)


def _write_hour(hour: _Hour) -> int:
    scene = _scene(hour.plan)
    columns = hour_of(scene, hour.number)
    begin = hour.plan.begin + timedelta(hours=hour.number)
    rows = _table(scene, columns)
    if rows.num_rows:
        # One file an hour for all replicas: benchmarks need large files, and readers use the column, not the file name.
        write(hour.root, REQUESTS, begin, rows, name(REPLICAS[0], 0, begin, 0))
    return int(rows.num_rows)


def _table(scene: Scene, columns: Columns) -> pa.Table:
    """Return rows as Arrow, in the schema's order."""
    values, present = columns.values, columns.present
    flow = values["flow"]
    world = scene.world
    client = scene.client[flow]
    clients = world.clients
    size = flow.size
    sends = np.array([role == "send" for role in (each.role for each in world.flows)])[flow]
    receives = np.array([role == "receive" for role in (each.role for each in world.flows)])[flow]
    body = values["body"]
    messages = values["messages"]
    broker_us = values["broker_us"].astype(np.int64)
    arrays = {
        "schema": pa.array(np.full(size, VERSION, dtype=np.int16)),
        "time": pa.array(values["time"], type=pa.timestamp("us", tz="UTC")),
        "replica": _chosen([REPLICAS[each.replica] for each in clients], client),
        "worker": pa.array(np.array([each.worker for each in clients], dtype=np.int16)[client]),
        "protocol": _chosen([each.protocol for each in clients], client),
        "code": _chosen(scene.codes, scene.code[flow]),
        "client_id": _chosen([each.id for each in clients], client),
        "address": _chosen([each.address for each in clients], client),
        "language": _chosen([each.language for each in clients], client),
        "version": _chosen([each.version for each in clients], client),
        "topic": _chosen([topic.name for topic in world.topics], scene.topic[flow]),
        "group": _chosen([group.name for group in world.groups], scene.group[flow], scene.group[flow] >= 0),
        "broker": _chosen(list(BROKERS), values["broker"], present["broker"]),
        "queue": pa.array(values["queue"].astype(np.int32), mask=~present["queue"]),
        "messages": pa.array(messages.astype(np.int32)),
        "bytes_in": pa.array(np.where(sends, body, 0)),
        "bytes_out": pa.array(np.where(receives, body * messages, 0)),
        "latency_us": pa.array(np.where(present["broker_us"], broker_us, 0) + values["own_us"].astype(np.int64)),
        "broker_us": pa.array(broker_us, mask=~present["broker_us"]),
        "response": pa.array(values["response"].astype(np.int32)),
        "ok": pa.array(values["ok"]),
        "attempt": pa.array(values["attempt"].astype(np.int32), mask=~present["attempt"]),
        "delay_ms": pa.array(values["delay_ms"].astype(np.int64), mask=~present["delay_ms"]),
        "tls": pa.array(np.array([each.tls for each in clients])[client]),
        "trace_id": _traces(values["trace"], present["trace"]),
        "key_hash": pa.array(values["key_hash"], mask=~present["key_hash"]),
        "weight": pa.nulls(size, pa.float64()),
    }
    # A new column of the schema raises here, instead of being written as null.
    return pa.Table.from_arrays([arrays[column.name] for column in REQUESTS.columns], schema=schema(REQUESTS))


def _chosen(words: list[str], indices: Array, present: Array | None = None) -> pa.Array:
    mask = None if present is None else ~present
    return pa.array(words, pa.string()).take(pa.array(np.maximum(indices, 0), mask=mask))


def _traces(ids: Array, present: Array) -> pa.Array:
    texts = [f"{high:016x}{low:016x}" for high, low in ids[present].tolist()]
    place = np.cumsum(present) - 1
    return pa.array(texts, pa.string()).take(pa.array(np.maximum(place, 0), mask=~present))


def _write_events(root: Path, table: Table, rows: list[Row]) -> None:
    """Write rows ordered by time, a file per hour."""
    arrow = schema(table)
    hours: dict[datetime, list[Row]] = {}
    for row in rows:
        hours.setdefault(row["time"].replace(minute=0, second=0, microsecond=0), []).append(row)
    for begin, some in hours.items():
        complete = [{column.name: row.get(column.name) for column in table.columns} for row in some]
        write(root, table, begin, pa.Table.from_pylist(complete, schema=arrow), name(REPLICAS[0], 0, begin, 0))
