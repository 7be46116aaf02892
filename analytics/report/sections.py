"""The report's sections: transform, picture, sentence.

A section queries Spark once for each table, draws the result, and keeps it for the Parquet files.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.facts import Facts
from analytics.incidents.incident import Incident
from analytics.incidents.tables import Tables
from analytics.report import charts, incident_table
from analytics.report.sentences import capacity_sentence, count, many, percent, quota_summary
from analytics.transforms import (
    balance,
    capacity,
    costs,
    end_to_end,
    errors,
    hot_keys,
    hot_topics,
    idle,
    inventory,
    latency,
    load,
    neighbours,
    queues,
    quotas,
    redelivery,
    sessions,
)
from proxy.traffic_rules.model import RuleFile

# Maximum rows of a table on the page; the Parquet file has all of them.
ROWS = 15
# Codes that wait for messages on purpose.
POLLS = (
    "PULL_MESSAGE",
    "LITE_PULL_MESSAGE",
    "POP_MESSAGE",
    "POP_LITE_MESSAGE",
    "NOTIFICATION",
    "ReceiveMessage",
    "PullMessage",
)


@dataclass(frozen=True)
class Traffic:
    """The data of a report, cached by Spark.

    cells: the requests' roll-up by SUBJECT, in periods that divide hours and days of the zone; clients: that by CLIENT
    and hour, without latencies. start, end: of the records, aware. tables: the compact tables of the incidents. rules:
    traffic rules whose limits are tried on the data.
    """

    requests: DataFrame
    connections: DataFrame
    members: DataFrame
    cells: DataFrame
    clients: DataFrame
    incidents: Sequence[Incident]
    tables: Tables
    start: datetime
    end: datetime
    zone: str = "UTC"
    facts: Facts = field(default_factory=Facts)
    rules: RuleFile | None = None

    @property
    def every(self) -> str:
        """The period of pictures."""
        return period(self.start, self.end)


def period(start: datetime, end: datetime) -> str:
    """Return a period that gives about a hundred points for the span of a picture."""
    steps = (("5 minutes", timedelta(hours=30)), ("1 hour", timedelta(days=20)))
    return next((every for every, most in steps if end - start <= most), "1 day")


@dataclass
class Section:
    """A part of the page. tables: by name, stored beside the page as Parquet; table: rows on the page itself."""

    name: str
    title: str
    lead: str
    figures: list[Figure] = field(default_factory=list)
    table: pd.DataFrame | None = None
    tables: dict[str, pa.Table] = field(default_factory=dict)


def sections(traffic: Traffic) -> Iterator[Section]:
    """Return all sections, in the page's order; empty sections are left out."""
    for make in _SECTIONS:
        section = make(traffic)
        if section is not None:
            yield section


def rows(table: pa.Table, zone: str) -> pd.DataFrame:
    """Return a table for display: times in the zone, with their offset, without histograms."""
    plain = [
        column.name
        for column in table.schema
        if not pa.types.is_list(column.type) or column.type.value_type == pa.string()
    ]
    shown: pd.DataFrame = table.select(plain).to_pandas()
    for column in table.select(plain).schema:
        if pa.types.is_timestamp(column.type):
            # Not as local clocks without offset: when clocks go back, two hours have the same one.
            shown[column.name] = pd.to_datetime(shown[column.name], utc=True).dt.tz_convert(ZoneInfo(zone))
    return shown


def clock(time: datetime) -> str:
    """Return a time's clock; with the offset from UTC where clocks go back and show it twice."""
    twice = time.replace(fold=0).utcoffset() != time.replace(fold=1).utcoffset()
    return f"{time:%H:%M%z}" if twice else f"{time:%H:%M}"


def _incidents(traffic: Traffic) -> Section:
    whole = incident_table.table(traffic.incidents)
    tables = {"incidents": whole}
    found = rows(whole, traffic.zone)
    found = found[found["muted"].isna()]
    muted = len(whole) - len(found)
    known = (
        f" {many(muted, 'known incident')} of the mute file {'is' if muted == 1 else 'are'} left out." if muted else ""
    )
    if found.empty:
        return Section("incidents", "Incidents", f"No deviation from the usual traffic.{known}", tables=tables)
    over = _rows(traffic, load.load(traffic.cells, by=("protocol",), every=traffic.every, zone=traffic.zone))
    ranks = found["severity"].map({name: rank for rank, name in enumerate(_SEVERITIES)})
    worst = found.assign(rank=ranks).sort_values(["rank", "score"], ascending=[True, False])
    counts = found["severity"].value_counts()
    by_severity = ", ".join(f"{counts[name]} {name}" for name in _SEVERITIES if name in counts)
    still = int(found["open"].sum())
    state = f"{many(still, 'incident')} {'goes' if still == 1 else 'go'} on" if still else "All incidents are over"
    shown = worst.assign(kind=worst["kind"].str.replace("_", " "), what_to_do=worst["advice"])
    return Section(
        "incidents",
        "Incidents",
        f"{state}. {many(len(found), 'incident')} in all: {by_severity}. The worst is first; the background is"
        f" the load.{known}",
        [charts.timeline(found, over)],
        shown[["severity", "kind", "start", "end", "happened", "what_to_do"]],
        tables,
    )


_SEVERITIES = ("critical", "warning", "info")


def _load(traffic: Traffic) -> Section:
    table = _table(load.load(traffic.cells, by=("protocol",), every=traffic.every, zone=traffic.zone))
    over = rows(table, traffic.zone)
    total = over[["requests", "messages"]].astype(float).sum()
    busiest = pd.Timestamp(over.groupby("time")["requests"].sum().idxmax())
    return Section(
        "load",
        "Load",
        f"{count(total.requests)} requests with {count(total.messages)} messages;"
        f" most of them in the {_period(traffic.every)} from {busiest:%d %B} {clock(busiest)} on.",
        [
            charts.areas(
                over.fillna({"protocol": "unknown"}), "requests", "protocol", f"requests per {_period(traffic.every)}"
            )
        ],
        tables={"load": table},
    )


def _topics(traffic: Traffic) -> Section | None:
    table = _table(hot_topics.hot_topics(traffic.cells, top=50))
    ranked = rows(table, traffic.zone).sort_values("rank")
    if ranked.empty:
        return None
    first = ranked.iloc[0]
    shown = list(ranked["topic"].head(len(charts.COLOURS)))
    theirs = traffic.cells.where(f.col("topic").isin(*shown))
    over = _rows(traffic, load.load(theirs, by=("topic",), every=traffic.every, zone=traffic.zone))
    return Section(
        "topics",
        "Topics",
        f"{first.topic} has {percent(first.share)} of all messages, sent and delivered.",
        [charts.areas(over, "messages", "topic", f"messages per {_period(traffic.every)}")],
        ranked.drop(columns=["rank"]),
        {"topics": table},
    )


def _latency(traffic: Traffic) -> Section:
    table = _table(latency.latency(traffic.cells, every=traffic.every, zone=traffic.zone))
    asked = traffic.cells.where(~f.col("code").isin(*POLLS))
    by_code = _rows(traffic, latency.latency(asked, by=("code",), every=traffic.every, zone=traffic.zone))
    whole = _rows(traffic, latency.latency(asked, by=("code", "broker"), every=None))
    by_code["p99 (ms)"] = by_code["p99_us"].astype(float) / 1000
    return Section(
        "latency",
        "Latency",
        "Response time at the 99th percentile, without long polls, which wait for messages.",
        [charts.lines(by_code, "p99 (ms)", "code", "ms", logarithmic=True, weight="requests")],
        _milliseconds(whole).sort_values("requests", ascending=False),
        {"latency": table},
    )


def _errors(traffic: Traffic) -> Section | None:
    table = _table(errors.errors(traffic.requests, every=traffic.every, zone=traffic.zone))
    failed = rows(table, traffic.zone)
    if failed.empty:
        return None
    by = ["protocol", "code", "topic", "response", "meaning"]
    whole = failed.groupby(by, dropna=False)["requests"].sum().reset_index().sort_values("requests", ascending=False)
    rates = _rows(traffic, errors.rates(traffic.cells, by=("protocol",), every=traffic.every, zone=traffic.zone))
    rates["percent"] = rates["error_rate"].astype(float) * 100
    first = whole.iloc[0]
    topic = "" if pd.isna(first.topic) else f" on {first.topic}"
    meaning = f"response {first.response}" if pd.isna(first.meaning) else first.meaning
    return Section(
        "errors",
        "Errors",
        f"Most frequent: {first.code}{topic}, {meaning} ({many(first.requests, 'time')}).",
        [
            charts.lines(
                rates.fillna({"protocol": "unknown"}), "percent", "protocol", "% of requests", weight="requests"
            )
        ],
        whole,
        {"errors": table},
    )


def _redelivery(traffic: Traffic) -> Section | None:
    table = _table(redelivery.redelivery(traffic.cells, every=traffic.every, zone=traffic.zone))
    over = rows(table, traffic.zone)
    counts = ["delivered", "redelivered", "send_backs", "nacks", "dead_letters"]
    whole = over.groupby(["group", "topic"], dropna=False, as_index=False)[counts].sum()
    bad = whole[(whole["redelivered"] > 0) | (whole["dead_letters"] > 0)].sort_values("redelivered", ascending=False)
    if bad.empty:
        return None
    dead = int(bad["dead_letters"].sum())
    return Section(
        "redelivery",
        "Redelivery and dead letters",
        f"{many(bad['redelivered'].sum(), 'message')} were redelivered,"
        f" and {many(dead, 'message')} became dead letters.",
        [charts.areas(over, "redelivered", "group", "redelivered messages")],
        bad,
        {"redelivery": table},
    )


def _consumers(traffic: Traffic) -> Section | None:
    # At least hourly: shorter periods of a month make no picture.
    every = traffic.every if traffic.every == "5 minutes" else "1 hour"
    table = _table(balance.balance(traffic.cells, every))
    over = rows(table, traffic.zone)
    if over.empty:
        return None
    over["name"] = over["group"].astype(str) + " ← " + over["topic"].astype(str)
    last = over.sort_values("time").groupby("name").tail(1).sort_values("backlog", ascending=False)
    columns = ["group", "topic", "sent", "received", "acked", "backlog", "wait_s"]
    return Section(
        "consumers",
        "Producers and consumers",
        "Backlog of sent and not yet received messages, estimated from the records; brokers have exact numbers."
        f" The table has each group's last {_period(every)}.",
        [charts.lines(over, "backlog", "name", "messages")],
        last[columns],
        {"balance": table},
    )


def _keys(traffic: Traffic) -> Section | None:
    table = _table(hot_keys.hot_keys(traffic.requests, every=None, top=5))
    skew = _table(queues.queues(traffic.requests, every=None))
    keys = rows(table, traffic.zone)
    hot = keys[keys["share"] > 2 * keys["expected_share"]].sort_values("share", ascending=False)
    if hot.empty:
        return None
    # As an exact number it has 19 digits and no thousands separators.
    hashes = hot["key_hash"].map(lambda value: f"{int(value) & 0xFFFFFFFFFFFFFFFF:016x}")
    return Section(
        "keys",
        "Hot keys",
        "Keys with more than twice their fair share of a topic's messages. Records contain only hashes of keys.",
        table=hot.assign(key_hash=hashes).drop(columns=["rank"]),
        tables={"hot_keys": table, "queues": skew},
    )


def _end_to_end(traffic: Traffic) -> Section | None:
    whole = _table(end_to_end.end_to_end(traffic.requests, every=None))
    shown = rows(whole, traffic.zone)
    if shown.empty:
        return None
    table = _table(end_to_end.end_to_end(traffic.requests, every=traffic.every, zone=traffic.zone))
    over = rows(table, traffic.zone)
    over["seconds"] = over["ack_p99_us"].astype(float) / 1e6
    over["name"] = over["group"].astype(str) + " ← " + over["topic"].astype(str)
    return Section(
        "end-to-end",
        "From the send to the acknowledgement",
        "Of sampled messages (with a trace), at the 99th percentile.",
        [charts.lines(over, "seconds", "name", "s", logarithmic=True, weight="traces")],
        _milliseconds(shown).sort_values("traces", ascending=False),
        {"end_to_end": table, "end_to_end_whole": whole},
    )


def _clients(traffic: Traffic) -> Section:
    versions = _table(inventory.versions(traffic.requests, traffic.facts.newest))
    clients = _table(inventory.clients(traffic.requests))
    migration = _table(inventory.migration(traffic.requests, every=traffic.every, zone=traffic.zone))
    known = rows(versions, traffic.zone).sort_values("clients", ascending=False)
    over = rows(migration, traffic.zone).groupby("time", as_index=False)[["messages_remoting", "messages_grpc"]].sum()
    messages = over[["messages_remoting", "messages_grpc"]].sum()
    over = over.melt("time", var_name="protocol", value_name="messages")
    over["protocol"] = over["protocol"].str.removeprefix("messages_")
    outdated = known.loc[known["outdated"].fillna(False).astype(bool), "clients"].sum()
    share = messages["messages_grpc"] / max(float(messages.sum()), 1.0)
    return Section(
        "clients",
        "Clients",
        f"{many(len(set(clients['client_id'].to_pylist())), 'client')}, {count(outdated)} with an outdated SDK;"
        f" {percent(share)} of the messages use gRPC.",
        [charts.areas(over, "messages", "protocol", f"messages per {_period(traffic.every)}")] if len(over) else [],
        known,
        {"clients": clients, "versions": versions, "migration": migration},
    )


def _sessions(traffic: Traffic) -> Section | None:
    table = _table(sessions.churn(traffic.connections, every=traffic.every, zone=traffic.zone))
    over = rows(table, traffic.zone)
    if over.empty:
        return None
    takeovers = _table(sessions.takeovers(traffic.members))
    melted = over.groupby("time", as_index=False)[["opened", "closed", "crashed"]].sum().melt("time", var_name="what")
    opened, closed, crashed = (count(over[name].sum()) for name in ("opened", "closed", "crashed"))
    gaps = rows(takeovers, traffic.zone)["gap_ms"].dropna()
    moved = f" Returning clients were away for {gaps.median() / 1000:.1f} s (median)." if len(gaps) else ""
    return Section(
        "sessions",
        "Connections",
        f"{opened} were opened and {closed} closed, {crashed} of these without notice.{moved}",
        [charts.lines(melted, "value", "what", f"connections per {_period(traffic.every)}")],
        tables={"churn": table, "takeovers": takeovers},
    )


def _tenants(traffic: Traffic) -> Section | None:
    table = _table(costs.costs(traffic.cells, traffic.facts.prices))
    billed = rows(table, traffic.zone).sort_values("cost", ascending=False)
    if len(billed) < 2:
        return None
    loudest = _table(neighbours.neighbours(traffic.clients, "1 hour").orderBy(f.desc("ratio")).limit(_LOUDEST))
    return Section(
        "tenants",
        "Tenants",
        f"{billed.iloc[0].tenant} causes {percent(billed.iloc[0].share)} of the cost."
        " The default prices only weigh resources against each other.",
        [charts.bars(billed, "tenant", "cost", "cost")],
        billed,
        {"costs": table, "neighbours": loudest},
    )


# Hours of clients, those furthest above their usual load first.
_LOUDEST = 10_000


def _quotas(traffic: Traffic) -> Section | None:
    if traffic.rules is None:
        return None
    table = _table(quotas.what_if(traffic.requests, traffic.rules))
    over = rows(table, traffic.zone).sort_values(["over_share", "rule", "subject"], ascending=[False, True, True])
    over["name"] = over["rule"] + ": " + over["subject"] + ", " + over["unit"]
    figures = [charts.bars(over, "name", "seconds_over", "seconds above the limit")] if len(over) else []
    return Section(
        "quotas",
        "Effect of the rules file",
        quota_summary(traffic.rules, over),
        figures,
        over.drop(columns=["name"]),
        {"quotas": table},
    )


def _capacity(traffic: Traffic) -> Section:
    table = _table(capacity.forecast(traffic.cells, traffic.facts.limits, traffic.zone))
    days = _table(capacity.daily(traffic.cells, traffic.zone))
    over = rows(days, traffic.zone).sort_values("time")
    lines = rows(table, traffic.zone)
    several = [charts.lines(over, "requests_per_s", unit="requests per second")] if len(over) > 1 else []
    return Section(
        "capacity",
        "Capacity",
        f"The busy hour of each day, {over.iloc[-1].busy_hour}:00 on the last, and its trend."
        f" {capacity_sentence(lines, traffic.facts.limits)}",
        several,
        lines,
        {"capacity": table, "busy_hours": days},
    )


def _idle(traffic: Traffic) -> Section | None:
    quiet = max((traffic.end - traffic.start) / 4, timedelta(hours=1))
    table = _table(idle.idle(traffic.requests, traffic.members, traffic.end, quiet))
    found = rows(table, traffic.zone)
    if found.empty:
        return None
    return Section(
        "idle",
        "Idle topics and groups",
        f"No messages in the last {_length(quiet)}.",
        table=found.sort_values("idle_days", ascending=False),
        tables={"idle": table},
    )


_SECTIONS: tuple[Callable[[Traffic], Section | None], ...] = (
    _incidents,
    _load,
    _topics,
    _latency,
    _errors,
    _redelivery,
    _consumers,
    _keys,
    _end_to_end,
    _clients,
    _sessions,
    _tenants,
    _quotas,
    _capacity,
    _idle,
)


def _table(frame: DataFrame) -> pa.Table:
    return frame.toArrow()


def _rows(traffic: Traffic, frame: DataFrame) -> pd.DataFrame:
    return rows(_table(frame), traffic.zone)


def _milliseconds(frame: pd.DataFrame) -> pd.DataFrame:
    shown = frame.copy()
    for name in [name for name in shown.columns if name.endswith("_us")]:
        shown[name.removesuffix("_us") + " (ms)"] = shown.pop(name).astype(float) / 1000
    return shown


def _period(every: str) -> str:
    return every.removeprefix("1 ")


def _length(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours / 24:.1f} days" if hours > 48 else f"{hours:.0f} hours"
