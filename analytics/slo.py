"""Service level objectives: error budgets and burn rates, from the records.

An objective states which share of requests must be good: answered without an error, answered in time, or (of messages)
taken by the group in time. Its budget is the share that may be bad over the span of the records; a burn rate of 1 uses
the budget up exactly over `days`.
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from analytics.incidents.statistics import Array
from analytics.incidents.tables import STEP

# Windows of burn rates in seconds, and the rates that are an alert: those of Google's Site Reliability Workbook.
WINDOWS: tuple[tuple[str, int, float], ...] = (("1h", 3600, 14.4), ("6h", 6 * 3600, 6.0), ("3d", 3 * 86400, 1.0))
# Runs a statement over the view `requests` of incidents/tables.py.
Query = Callable[[str], pd.DataFrame]


class ObjectivesError(Exception):
    """Raised for an invalid file of objectives; the text is a sentence that names the key."""


class Objective(BaseModel):
    """One objective."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str = Field(min_length=1, description="unique name")
    kind: Literal["availability", "latency", "delivery"] = Field(
        description="good: requests without error; sends and acknowledgements answered in time; messages taken in time"
    )
    target: float = Field(gt=0, lt=1, description="least share of good requests")
    topic: str = Field("*", description="topics, with * and ?")
    tenant: str = Field("*", description="tenants, with * and ?")
    group: str = Field("*", description="consumer groups, with * and ?, of kind delivery")
    milliseconds: float | None = Field(None, gt=0, description="longest latency, of kind latency")
    minutes: int | None = Field(None, ge=5, description="longest time until a message is taken, of kind delivery")
    days: int = Field(30, ge=1, description="length over which the budget lasts")

    @model_validator(mode="after")
    def _complete(self) -> "Objective":
        needed = {"latency": self.milliseconds, "delivery": self.minutes}
        if self.kind in needed and needed[self.kind] is None:
            raise ValueError(f"{self.kind} needs {'milliseconds' if self.kind == 'latency' else 'minutes'}")
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    objective: list[Objective] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Status:
    """An objective's result. budget: share of the bad requests that were allowed and are left; below 0: exceeded.
    burn: rate in each of WINDOWS, ending with the records. alerts: windows whose rate is too high.
    """

    objective: Objective
    total: float
    bad: float
    budget: float
    burn: dict[str, float]
    alerts: tuple[str, ...]

    @property
    def share(self) -> float:
        """Return the share of good requests."""
        return 1 - self.bad / self.total if self.total else 1.0


def parse(text: str) -> tuple[Objective, ...]:
    """Parse the text of a file of objectives. Raises ObjectivesError."""
    try:
        found = tuple(_File.model_validate(tomllib.loads(text)).objective)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = "there is no such key" if first["type"] == "extra_forbidden" else first["msg"]
        raise ObjectivesError(f"{key}: {reason}") from None
    except (ValueError, RecursionError) as error:
        raise ObjectivesError(f"it is no TOML: {error}") from None
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ObjectivesError(f"two objectives have the name {twice!r}")
    return found


def evaluate(objectives: Sequence[Objective], query: Query) -> list[Status]:
    """Return the status of each objective. Raises ValueError for one that no request matches."""
    end = int(query("SELECT MAX(t) AS t FROM requests")["t"].iloc[0]) + 1
    return [
        _status(each, _delivery(each, query) if each.kind == "delivery" else _requests(each, query), end)
        for each in objectives
    ]


_SENDS = "op IN ('send', 'ack')"


def _requests(objective: Objective, query: Query) -> pd.DataFrame:
    """Return total and bad requests by period."""
    bad = f"latency > {objective.milliseconds} * 1000.0" if objective.kind == "latency" else "NOT ok"
    where = _SENDS if objective.kind == "latency" else "op IN ('send', 'receive', 'ack')"
    rows = query(
        f"SELECT t, topic, tenant, SUM(w) AS total, SUM(CASE WHEN {bad} THEN w ELSE 0 END) AS bad FROM requests"
        f" WHERE {where} AND topic IS NOT NULL GROUP BY t, topic, tenant"
    )
    return _matching(rows, objective)


def _delivery(objective: Objective, query: Query) -> pd.DataFrame:
    """Return due messages by period, and those that a group had not taken in time: the first due are taken first."""
    due = query(
        f"SELECT CAST(FLOOR((us + COALESCE(delay, 0) * 1000.0) / {STEP}e6) AS BIGINT) AS t, topic, tenant, SUM(m) AS m"
        " FROM requests WHERE op = 'send' AND ok AND topic IS NOT NULL GROUP BY 1, topic, tenant"
    )
    taken = query(
        "SELECT t, topic, grp, SUM(CASE WHEN again THEN 0 ELSE m END) AS m FROM requests"
        " WHERE op = 'receive' AND topic IS NOT NULL AND grp IS NOT NULL GROUP BY t, topic, grp"
    )
    end = int(query("SELECT MAX(t) AS t FROM requests")["t"].iloc[0])
    due = _matching(due, objective)
    parts = [pd.DataFrame({"t": [], "total": [], "bad": []})]
    for (topic, group), part in taken.groupby(["topic", "grp"]):
        own = due[due["topic"] == topic]
        if fnmatchcase(str(group), objective.group) and len(own):
            first = int(min(own["t"].min(), part["t"].min()))
            sent, got = (_series(each, first, end) for each in (own, part))
            # Messages from before the group's first receive are not its own.
            sent[: int(np.argmax(got > 0))] = 0.0
            bad = _late(sent, got, -(-(objective.minutes or 0) * 60 // STEP))
            parts.append(pd.DataFrame({"t": np.arange(sent.size) + first, "total": sent, "bad": bad}))
    return pd.concat(parts)


def _series(rows: pd.DataFrame, first: int, end: int) -> Array:
    inside = rows[rows["t"] <= end]
    return np.asarray(np.bincount(inside["t"].to_numpy(int) - first, inside["m"].to_numpy(float), end - first + 1))


def _late(sent: Array, got: Array, periods: int) -> Array:
    """Return of each period's messages those not taken `periods` later. Those still in time are good."""
    due, taken = sent.cumsum(), _taken(sent, got).cumsum()
    later = np.minimum(np.arange(sent.size) + periods, sent.size - 1)
    late = np.clip(due - np.maximum(taken[later], due - sent), 0.0, sent)
    late[np.arange(sent.size) + periods > sent.size - 1] = 0.0
    return np.asarray(late)


def _taken(sent: Array, got: Array) -> Array:
    """Return the messages that a group took of those that were due.

    What it takes beyond them, of an older backlog or again, says nothing about later messages, except those of the next
    period: a message may be taken before its send is recorded.
    """
    taken = np.zeros(sent.size)
    waiting = ahead = 0.0
    for place in range(sent.size):
        waiting += sent[place]
        taken[place] = min(waiting, got[place] + ahead)
        ahead = min(max(got[place] + ahead - waiting, 0.0), got[place])
        waiting -= taken[place]
    return taken


def _matching(rows: pd.DataFrame, objective: Objective) -> pd.DataFrame:
    kept = [
        fnmatchcase(str(topic), objective.topic) and fnmatchcase(str(tenant), objective.tenant)
        for topic, tenant in zip(rows["topic"], rows["tenant"], strict=True)
    ]
    return rows[kept]


def _status(objective: Objective, rows: pd.DataFrame, end: int) -> Status:
    total, bad = (float(rows[name].sum()) for name in ("total", "bad"))
    if not total:
        raise ValueError(f"no request matches the objective {objective.name!r}")
    allowed = 1 - objective.target
    burn = {}
    for name, seconds, _ in WINDOWS:
        inside = rows[rows["t"] >= end - seconds // STEP]
        burn[name] = float(inside["bad"].sum() / max(inside["total"].sum(), 1e-9) / allowed)
    alerts = tuple(name for name, _, limit in WINDOWS if burn[name] >= limit)
    return Status(objective, total, bad, 1 - bad / (total * allowed), burn, alerts)


def lines(statuses: Sequence[Status]) -> Iterator[str]:
    """Return statuses as text, those with alerts first."""
    for each in sorted(statuses, key=lambda status: (not status.alerts, status.budget)):
        objective = each.objective
        burns = ", ".join(f"{rate:.1f} in {name}" for name, rate in each.burn.items())
        left = (
            f"{each.budget:.0%} of the budget left"
            if each.budget >= 0
            else f"budget exceeded {1 - each.budget:.1f} times"
        )
        state = f"ALERT {' '.join(each.alerts)}" if each.alerts else "ok"
        good = f"{each.share:.4%} good, target {objective.target:.4%}"
        yield f"{objective.name}: {good}; {left}; burn rate {burns}; {state}"


def as_json(each: Status) -> str:
    """Return a status as one JSON line."""
    content: dict[str, Any] = {
        "name": each.objective.name, "kind": each.objective.kind, "target": each.objective.target,
        "total": each.total, "bad": each.bad, "good_share": each.share, "budget_left": each.budget,
        "burn_rates": each.burn, "alerts": each.alerts,
    }  # fmt: skip
    return json.dumps(content, ensure_ascii=False)


def metrics(statuses: Sequence[Status]) -> str:
    """Return the statuses in Prometheus's text format, for the textfile collector of its node exporter."""
    text = [
        "# HELP gantry_slo_budget_left Share of the error budget that is left; below 0: exceeded.",
        "# TYPE gantry_slo_budget_left gauge",
        *(f"gantry_slo_budget_left{{objective={_quoted(each)}}} {each.budget:.6g}" for each in statuses),
        "# HELP gantry_slo_burn_rate Rate at which the error budget is used; 1 uses it up over the objective's days.",
        "# TYPE gantry_slo_burn_rate gauge",
    ]
    for each in statuses:
        text += [
            f'gantry_slo_burn_rate{{objective={_quoted(each)},window="{name}"}} {rate:.6g}'
            for name, rate in each.burn.items()
        ]
    return "\n".join(text) + "\n"


def _quoted(status: Status) -> str:
    name = status.objective.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{name}"'
