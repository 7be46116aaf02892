"""The figures of several workers as those of one replica; values only."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proxy.admin.http import merging
from proxy.admin.http.merging import Data, Rule, Told
from proxy.admin.live.pages import ROWS, newest
from proxy.admin.live.traffic_second import percentile


def _counts(values: list[Any]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for value in values:
        found.update(value)
    return dict(found)


_RULES: dict[str, Rule] = {
    "now": merging.largest,
    "uptime": merging.largest,
    "listeners": merging.union,
    "ready": all,
    "draining": any,
    "connections": _counts,
    "clients": merging.total,
    "busy": merging.total,
    "request_bytes": merging.total,
    "held": merging.total,
    "negotiations": _counts,
    "codes": _counts,
    "brokers": lambda values: merging.joined_brokers([broker for value in values for broker in value]),
}


def figures(told: Sequence[Told], query: Mapping[str, str]) -> Data:
    """What the page shows of all."""
    found = merging.merged([each.data for each in told], _RULES)
    found["reasons"] = _reasons(told)
    found["seconds"] = _seconds(told)
    for kind in ("topics", "groups"):
        found[kind] = _busiest([each.data[kind] for each in told])
    found["events"] = newest([event for each in told for event in each.data["events"]])
    return found


def _reasons(told: Sequence[Told]) -> list[str]:
    """Once what all say, and otherwise who says it."""
    sayers: dict[str, list[int]] = {}
    for each in told:
        for reason in each.data["reasons"]:
            sayers.setdefault(reason, []).append(each.worker)
    return [
        reason if len(workers) == len(told) else f"worker {', '.join(map(str, workers))}: {reason}"
        for reason, workers in sayers.items()
    ]


def _seconds(told: Sequence[Told]) -> list[Data]:
    """Seconds that are complete at all workers: each is told once, and one may be a moment behind."""
    if not all(each.data["seconds"] for each in told):
        return []
    last = min(each.data["seconds"][-1]["at"] for each in told)
    found: dict[int, list[tuple[Data, Mapping[str, int]]]] = {}
    for each in told:
        for second in each.data["seconds"]:
            if second["at"] <= last:
                latencies = each.aside["latencies"].get(str(second["at"]), {})
                found.setdefault(second["at"], []).append((second, latencies))
    return [_second(at, parts) for at, parts in sorted(found.items())]


def _second(at: int, parts: Sequence[tuple[Data, Mapping[str, int]]]) -> Data:
    counts = {int(place): count for place, count in _counts([latencies for _, latencies in parts]).items()}
    return {
        "at": at,
        **{name: _sums([second[name] for second, _ in parts]) for name in ("remoting", "grpc")},
        "p50": percentile(counts, 0.5),
        "p99": percentile(counts, 0.99),
    }


def _sums(items: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for item in items:
        for name, value in item.items():
            found[name] = round(found.get(name, 0) + value, 2)
    return found


def _busiest(lists: Sequence[Sequence[Data]]) -> list[Data]:
    """Topics or groups by name, with their trends, which end together."""
    joined: list[Data] = [
        {
            "name": rows[0]["name"],
            **_sums({key: value for key, value in row.items() if key not in ("name", "trend")} for row in rows),
            "trend": _trend([row["trend"] for row in rows]),
        }
        for rows in merging.alike((row for rows in lists for row in rows), "name")
    ]
    return sorted(joined, key=_place)[:ROWS]


def _place(row: Data) -> tuple[float, str]:
    return -row["requests"], row["name"]


def _trend(trends: Sequence[Sequence[int]]) -> list[int]:
    length = max(map(len, trends))
    return [sum(trend[-back] for trend in trends if back <= len(trend)) for back in range(length, 0, -1)]
