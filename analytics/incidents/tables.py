"""The compact tables on which detectors work: sums of the records, by SQL that Spark and DuckDB share.

Their size follows the number of topics, groups, clients and queues and the length of time, not the number of requests.
Times are numbers of periods since 1970: STEP seconds, and a multiple of it in tables of queues, members and keys.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analytics.transforms.operations import ACK, OPERATIONS, WEIGHT
from remoting.names import DLQ_PREFIX, RETRY_PREFIX

_log = logging.getLogger("gantry.analytics")

STEP = 300
# Periods of `queues`, `members` and `keys`, in STEPs.
COARSE = 2
KEY_STEPS = 6

# Runs one SELECT statement.
Query = Callable[[str], pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Tables:
    """Sums of the records of one span.

    totals: requests (n, and rows before weighting), timed ones, received messages, sends, the sum of their latencies'
    logarithms, and the bytes of their bodies, by period and one dimension, whose value is in `value`. events: requests
    that failed or were slow, sends that were large or repeat a key, redelivered messages, those of a late attempt, and
    dead letters, by `event` and all dimensions. flows: messages by operation, topic and group, requests with and
    without messages apart; `due`: stored messages counted when they are due. queues, members: the same by queue and by
    client. delays: scheduled messages by client and delay. keys: messages by key. connections: their opens and closes,
    by cause.
    """

    totals: pd.DataFrame
    events: pd.DataFrame
    flows: pd.DataFrame
    queues: pd.DataFrame
    members: pd.DataFrame
    delays: pd.DataFrame
    keys: pd.DataFrame
    connections: pd.DataFrame

    @property
    def first(self) -> int:
        return int(self.totals["t"].min())

    @property
    def last(self) -> int:
        return int(self.totals["t"].max())

    @property
    def periods(self) -> int:
        return self.last - self.first + 1


# Dimensions of `totals` and of scans: columns of `events`.
DIMENSIONS: tuple[tuple[str, ...], ...] = (
    ("sdk",),
    ("replica",),
    ("broker",),
    ("topic",),
    ("tenant",),
    ("topic", "broker"),
    ("grp",),
    ("network",),
    ("client",),
)
SEPARATOR = "\x1f"
# Periods for which a bound of slow requests is estimated, also for each broker and replica, and the least number of
# requests in them; the quantile of the bounds, and how far the bound of all may lie above it.
_BLOCK, _BLOCK_ROWS, _QUANTILE, _ABOVE_BLOCKS = 24, 30, 0.15, 1.25
# Value of GROUPING of the bound of all requests of a code and topic.
_OF_ALL = 7
# A slow request takes two and a half standard deviations (of the logarithm) longer than the median, estimated from
# median and upper quartile; at least twice, at most eight times as long.
_SLOW = "p50 * LEAST(8.0, GREATEST(2.0, POWER(p75 / GREATEST(p50, 1.0), 3.7)))"
# A large body has four to sixteen times the median, and at least so many bytes.
_LARGE = "GREATEST(2048.0, p50 * LEAST(16.0, GREATEST(4.0, POWER(p75 / GREATEST(p50, 1.0), 3.7))))"
# Classes of delays by factor e: each is 3 % longer than the one before, less than a wrong clock changes a delay.
DELAY_STEPS = 32
# Repetitions of a message by one client in a minute that count; the attempt from which on a message is said to fail.
_REPEATS, _LATE_ATTEMPT = 3, 6


def operation_column() -> str:
    """Return an expression for the operation of a record."""
    cases = " ".join(
        f"WHEN code IN ({', '.join(repr(code) for code in codes)}) THEN '{name}'" for name, codes in OPERATIONS.items()
    )
    return f"CASE {cases} ELSE 'other' END"


def tenant_column() -> str:
    """Return an expression for the tenant of a record: the namespace of its topic or group."""
    owner = "COALESCE(topic, grp)"
    own = f"REPLACE(REPLACE({owner}, '{RETRY_PREFIX}', ''), '{DLQ_PREFIX}', '')"
    return (
        f"CASE WHEN {owner} IS NULL THEN NULL WHEN {own} LIKE '%!%%' ESCAPE '!' THEN SUBSTRING_INDEX({own}, '%', 1)"
        " ELSE 'default' END"
    )


# The number of requests by hour since 1970.
HOURS = f"SELECT CAST(FLOOR(t * {STEP} / 3600.0) AS BIGINT) AS hour, COUNT(*) AS n FROM requests GROUP BY 1"


def main_span(hours: pd.DataFrame) -> tuple[int, int]:
    """Return the first hour of the requests and the hour after the last, without a few requests far before or after.

    Such requests come from a clock that was wrong, and would make the span years long. hours: the result of `HOURS`.
    """
    hours = hours.sort_values("hour")
    places, counts = hours["hour"].to_numpy(int), hours["n"].to_numpy(float)
    # Records with more than a day between them are of different parts.
    parts = np.cumsum(np.diff(places, prepend=places[:1]) > _FAR)
    sums = np.bincount(parts, counts)
    total = counts.sum()
    kept = np.flatnonzero(sums > max(min(_FEW, 0.01 * total), _FEW_SHARE * total))
    if not kept.size:
        return 0, 2**31
    inside = places[(parts >= kept[0]) & (parts <= kept[-1])]
    if inside.size < places.size:
        left_out = total - counts[(parts >= kept[0]) & (parts <= kept[-1])].sum()
        _log.error("%d requests are more than a day apart from all others, and left out: a clock was wrong", left_out)
    return int(inside[0]), int(inside[-1]) + 1


# Hours between records of different parts; most records of a part that is left out, and their share.
_FAR, _FEW, _FEW_SHARE = 24, 20, 2e-4


def within(span: tuple[int, int]) -> str:
    """Return the condition on `t` for a span of hours since 1970, the end exclusive."""
    first, end = (hour * 3600 // STEP for hour in span)
    return f"t >= {first} AND t < {end}"


def requests_view(micros: str) -> str:
    """Return a SELECT of the requests in the form that all other statements use.

    It reads `records`, whose column `group` is named `grp`. micros: expression of the time in µs.
    """
    return f"""
SELECT {micros} AS us, CAST(FLOOR({micros} / {STEP}e6) AS BIGINT) AS t, {operation_column()} AS op,
  {WEIGHT} AS w, messages * {WEIGHT} AS m, topic, grp, broker, queue, replica,
  client_id AS client, address, protocol,
  CASE WHEN version IS NULL THEN NULL ELSE CONCAT(protocol, ' ', COALESCE(language, '?'), ' ', version) END AS sdk,
  CASE WHEN address LIKE '%.%' THEN CONCAT(SUBSTRING_INDEX(address, '.', 3), '.0/24') ELSE address END AS network,
  {tenant_column()} AS tenant,
  response, ok, latency_us AS latency, delay_ms AS delay, key_hash AS mkey, code, attempt,
  bytes_in / GREATEST(messages, 1) AS body,
  (attempt > 1 OR topic LIKE '{RETRY_PREFIX}%') AS again
FROM records"""


_TIMED = "op IN ('send', 'ack')"
_ALL = "op, topic, grp, broker, queue, replica, client, network, sdk, tenant, response"


def _totals() -> str:
    sets = ", ".join(f"(t, {', '.join(names)})" for names in DIMENSIONS)
    columns = sorted({name for names in DIMENSIONS for name in names})
    cases = [
        (" AND ".join(f"g_{name} = 0" for name in names), "+".join(names), f" || CHR({ord(SEPARATOR)}) || ".join(names))
        for names in sorted(DIMENSIONS, key=len, reverse=True)
    ]
    dimension = " ".join(f"WHEN {test} THEN '{name}'" for test, name, _ in cases)
    value = " ".join(f"WHEN {test} THEN {text}" for test, _, text in cases)
    return f"""
SELECT * FROM (SELECT t, CASE {dimension} END AS dimension, CASE {value} END AS value, n, rows_, timed, received, sends,
  logs, bytes FROM (
SELECT t, {", ".join(columns)}, {", ".join(f"GROUPING({name}) AS g_{name}" for name in columns)},
  SUM(w) AS n, CAST(COUNT(*) AS DOUBLE) AS rows_, SUM(CASE WHEN {_TIMED} THEN w ELSE 0 END) AS timed,
  SUM(CASE WHEN op = 'receive' THEN m ELSE 0 END) AS received, SUM(CASE WHEN op = 'send' THEN w ELSE 0 END) AS sends,
  SUM(CASE WHEN op = 'send' THEN w * LN(GREATEST(latency, 1)) ELSE 0 END) AS logs,
  SUM(CASE WHEN op = 'send' THEN w * body ELSE 0 END) AS bytes
FROM requests GROUP BY GROUPING SETS ({sets}))) WHERE value IS NOT NULL"""


def _events() -> str:
    branch = "SELECT '{0}' AS event, t, " + _ALL + ", {1} AS amount, w * body AS bytes FROM {2} WHERE {3}"
    # Little above the usual bound of two hours: a version or a fault that slows a part of the sends for long does not
    # make slow sends usual, nor do a broker and a replica that are slow at all times. Refused sends are quick.
    usual = f"""(SELECT code AS c, topic AS tp, MIN(bound) AS bound
  FROM (SELECT code, topic, part, {_ABOVE_BLOCKS} * PERCENTILE_APPROX(bound, {_QUANTILE}) AS bound
    FROM (SELECT code, topic, part, {_SLOW} AS bound FROM (
      SELECT code, topic, 4 * GROUPING(block) + 2 * GROUPING(broker) + GROUPING(replica) AS part, COUNT(*) AS k,
        PERCENTILE_APPROX(latency, 0.5) AS p50, PERCENTILE_APPROX(latency, 0.75) AS p75
      FROM (SELECT code, topic, latency, COALESCE(broker, '') AS broker, replica,
          CAST(FLOOR(t / {_BLOCK}.0) AS BIGINT) AS block FROM requests WHERE {_TIMED} AND ok AND topic IS NOT NULL)
      GROUP BY GROUPING SETS ((code, topic), (code, topic, block), (code, topic, block, broker),
        (code, topic, block, replica))) WHERE k >= {_BLOCK_ROWS} OR part = {_OF_ALL})
    GROUP BY code, topic, part)
  GROUP BY code, topic)"""
    slow = f"requests JOIN {usual} ON code = c AND topic = tp"
    # Far above the usual body of two hours.
    size = f"""(SELECT topic AS tp, PERCENTILE_APPROX(bound, {_QUANTILE}) AS bound
  FROM (SELECT topic, {_LARGE} AS bound FROM (
      SELECT topic, PERCENTILE_APPROX(body, 0.5) AS p50, PERCENTILE_APPROX(body, 0.75) AS p75
      FROM requests WHERE op = 'send' AND topic IS NOT NULL GROUP BY topic, CAST(FLOOR(t / {_BLOCK}.0) AS BIGINT)))
  GROUP BY topic)"""
    # A repeated send has the same key and size, and comes within a minute of the one before. At most _REPEATS of a key
    # and minute count, because a busy key is no repetition. A send that was not stored is rightly repeated. Under
    # sampling, both have to be recorded, so that a repetition stands for the square of their weight.
    gap = "us - LAG(us) OVER (PARTITION BY t, topic, client, mkey, body ORDER BY us)"
    again = f"""(SELECT t, op, topic, NULL AS grp, MIN(broker) AS broker, NULL AS queue, client,
    MIN(replica) AS replica, MIN(network) AS network, MIN(sdk) AS sdk, MIN(tenant) AS tenant, MIN(response) AS response,
    AVG(w) * AVG(w) * LEAST(COUNT(*), {_REPEATS}) AS w, AVG(body) AS body
  FROM (SELECT *, {gap} AS gap FROM requests
    WHERE op = 'send' AND m > 0 AND mkey IS NOT NULL AND topic IS NOT NULL AND client IS NOT NULL)
  WHERE gap <= 60e6 GROUP BY t, op, topic, client, mkey, body, CAST(FLOOR(us / 60e6) AS BIGINT))"""
    branches = (
        branch.format("large", "w", f"requests JOIN {size} ON topic = tp", "op = 'send' AND body > bound"),
        branch.format("repeated", "w", again, "TRUE"),
        branch.format("late", "w", "requests", f"op = 'receive' AND m > 0 AND attempt >= {_LATE_ATTEMPT}"),
        branch.format("failed", "w", "requests", "NOT ok"),
        branch.format("slow", "w", slow, f"{_TIMED} AND latency > bound"),
        branch.format("redelivered", "m", "requests", "op = 'receive' AND m > 0 AND again"),
        branch.format("buried", "w", "requests", f"op = 'bury' OR (op = 'send' AND topic LIKE '{DLQ_PREFIX}%')"),
    )
    union = " UNION ALL ".join(branches)
    sums = "SUM(amount) AS n, COUNT(*) AS rows_, SUM(bytes) AS bytes"
    return f"SELECT event, t, {_ALL}, {sums} FROM ({union}) GROUP BY event, t, {_ALL}"


_STATEMENTS = {
    "totals": _totals(),
    "events": _events(),
    "flows": """
SELECT t, op, topic, grp, SUM(w) AS n, SUM(CASE WHEN again THEN 0 ELSE m END) AS m, COUNT(*) AS rows_ FROM requests
WHERE op IN ('receive', 'ack') AND topic IS NOT NULL AND grp IS NOT NULL GROUP BY t, op, topic, grp, m > 0
UNION ALL
SELECT t, 'send' AS op, topic, NULL AS grp, SUM(w) AS n, SUM(m) AS m, COUNT(*) AS rows_ FROM requests
WHERE op = 'send' AND topic IS NOT NULL GROUP BY t, topic, m > 0
UNION ALL
SELECT CAST(FLOOR((us + COALESCE(delay, 0) * 1000.0) / {step}e6) AS BIGINT) AS t, 'due' AS op, topic, NULL AS grp,
  SUM(w) AS n, SUM(m) AS m, COUNT(*) AS rows_ FROM requests
WHERE op = 'send' AND topic IS NOT NULL GROUP BY 1, topic, m > 0""".replace("{step}", str(STEP)),
    "queues": f"""
SELECT CAST(FLOOR(t / {COARSE}.0) AS BIGINT) AS t, op, topic, grp, broker, queue, SUM(w) AS n, SUM(m) AS m,
  COUNT(*) AS rows_ FROM requests
WHERE op IN ('send', 'receive', 'ack') AND queue IS NOT NULL AND topic IS NOT NULL
GROUP BY 1, op, topic, grp, broker, queue, m > 0""",
    "members": f"""
SELECT CAST(FLOOR(t / {COARSE}.0) AS BIGINT) AS t, op, topic, grp, client, sdk, MAX(replica) AS replica, SUM(w) AS n,
  SUM(m) AS m, COUNT(*) AS rows_, MIN(us) AS first_us, MAX(us) AS last_us FROM requests
WHERE op IN ('send', 'receive', 'ack') AND client IS NOT NULL AND topic IS NOT NULL
GROUP BY 1, op, topic, grp, client, sdk, m > 0""",
    "delays": f"""
SELECT t, topic, client, sdk, network, tenant, replica, FLOOR(LN(1.0 + delay) * {DELAY_STEPS}) AS size, SUM(w) AS n,
  COUNT(*) AS rows_ FROM requests WHERE delay IS NOT NULL AND topic IS NOT NULL
GROUP BY t, topic, client, sdk, network, tenant, replica, 8""",
    "keys": f"""
SELECT CAST(FLOOR(t / {KEY_STEPS}.0) AS BIGINT) AS t, topic, mkey, SUM(w) AS n FROM requests
WHERE op = 'send' AND mkey IS NOT NULL AND topic IS NOT NULL GROUP BY 1, topic, mkey HAVING SUM(w) >= 4""",
}


def collect(query: Query, connections: Query) -> Tables:
    """Return the tables. query: over the view `requests`; connections: over the view `ends`."""
    found = {name: query(statement) for name, statement in _STATEMENTS.items()}
    return Tables(
        **found,
        connections=connections(
            "SELECT t, event, cause, replica, client, address, network, sdk, COUNT(*) AS n FROM ends"
            " GROUP BY t, event, cause, replica, client, address, network, sdk"
        ),
    )


def connections_view(micros: str) -> str:
    """Return a SELECT of the connections' events in the form of `collect`."""
    return f"""
SELECT CAST(FLOOR({micros} / {STEP}e6) AS BIGINT) AS t, event, cause, replica, client_id AS client, address,
  CASE WHEN version IS NULL THEN NULL ELSE CONCAT(protocol, ' ', COALESCE(language, '?'), ' ', version) END AS sdk,
  CASE WHEN address LIKE '%.%' THEN CONCAT(SUBSTRING_INDEX(address, '.', 3), '.0/24') ELSE address END AS network
FROM connection_records"""


def joined(frame: pd.DataFrame, names: tuple[str, ...]) -> "pd.Series[str]":
    """Return the values of several columns as one; null where one is null."""
    whole = frame[names[0]].astype(object)
    for name in names[1:]:
        whole = (whole + SEPARATOR + frame[name]).astype(object)
    return whole


def sampled_share(rows: pd.DataFrame) -> float:
    """Return the records for each request that they stand for, at most 1: few records are evidence of few requests.

    Requests without a message, polls in vain and failed sends, may be recorded at another rate than those with one.
    """
    full = rows[(rows["m"] > 0) | (rows["op"] == ACK)]
    return min(float(full["rows_"].sum() / max(full["n"].sum(), 1e-9)), 1.0)
