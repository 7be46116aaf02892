"""What the browser asks for: the page's files, and the figures that it shows."""

import asyncio
import socket
import time
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import orjson

from proxy.admin.live.traffic import LINGER, Traffic
from proxy.admin.replica import AdminReplica
from proxy.observability.metrics.process import product_version
from proxy.operations import brokers, worker_extras

# Path of each file, and what it is.
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/ui/page.css": ("page.css", "text/css; charset=utf-8"),
    "/ui/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/ui/icon.svg": ("icon.svg", "image/svg+xml"),
}
# Topics and groups of one answer, and events.
ROWS = 40
_EVENTS = 40
# Topics and groups that a worker tells another: what is busy in all may be less so in each.
_MORE_ROWS = 10 * ROWS


def file(path: str) -> tuple[str, bytes]:
    """Media type and content of one of the page's files."""
    name, kind = FILES[path]
    return kind, (files("proxy.admin.live") / "page" / name).read_bytes()


class Figures:
    """What the page shows of a replica."""

    def __init__(self, replica: AdminReplica) -> None:
        self._replica = replica
        self._release = product_version()
        self.traffic = Traffic(replica.core.observers)
        self._end: asyncio.TimerHandle | None = None

    def page(self, query: Mapping[str, str]) -> tuple[str, bytes]:
        """Everything since the second `since`; `topic` and `group` choose rows by a part of their names."""
        since = query.get("since", "")
        self.traffic.look()
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(LINGER + 1, self.traffic.tidy)
        second = int(since) if since.isdecimal() and len(since) < 12 else 0
        rows = _MORE_ROWS if worker_extras.wanted("latencies") else ROWS
        answer = {
            **self._summary(),
            "seconds": self.traffic.seconds(second),
            "topics": self.traffic.busiest("topics", rows, query.get("topic", "").lower()),
            "groups": self.traffic.busiest("groups", rows, query.get("group", "").lower()),
            "codes": self.traffic.codes(),
            "events": self._events(),
        }
        worker_extras.tell("latencies", lambda: self.traffic.latencies(second))
        return "application/json", orjson.dumps(answer)

    def _summary(self) -> dict[str, Any]:
        replica = self._replica
        health = replica.admin.health.report("/readyz")
        return {
            "now": time.time(),
            "replica": replica.settings.replica or socket.gethostname(),
            "release": self._release,
            "listeners": [str(address) for address in replica.addresses],
            "uptime": time.time() - replica.admin.started,
            "ready": health.ok,
            "reasons": [f"{check.aspect}: {check.text}" for check in health.checks if check.text],
            "draining": replica.core.drain.draining,
            "connections": {"remoting": len(replica.channels), "grpc": len(replica.grpc.server.connections)},
            "clients": len(replica.registry),
            "busy": replica.core.active_requests,
            "request_bytes": replica.core.budget.used,
            "held": len(replica.grpc.renewal),
            "negotiations": self._negotiations(),
            "brokers": [broker.model_dump() for broker in brokers.brokers(replica)],
        }

    def _negotiations(self) -> dict[str, int]:
        """Connections by the outcome of negotiation, over all listeners."""
        counts: dict[str, int] = {}
        for (_, outcome), count in self._replica.metrics.negotiations.outcomes.items():
            counts[outcome] = counts.get(outcome, 0) + count
        return counts

    def _events(self) -> list[dict[str, Any]]:
        """What has happened of late, the newest first."""
        admin = self._replica.admin
        found: list[dict[str, Any]] = [
            {
                "at": trouble.at,
                "kind": "error",
                "text": f"{trouble.where}: {trouble.kind} from {trouble.address} {trouble.text}".rstrip(),
                "first": trouble.first.hex(" "),
            }
            for _, trouble in admin.troubles.newest()
        ]
        found += [
            {
                "at": closed.at,
                "kind": "closed",
                "text": f"{closed.protocol} {closed.client_id or closed.address} closed: {closed.cause}"
                f" after {closed.age:.0f} s, {closed.requests} requests",
            }
            for _, closed in admin.closed.newest()
        ]
        return newest(found)


def newest(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest events first, as many as one answer has."""
    return sorted(events, key=lambda event: -float(event["at"]))[:_EVENTS]
