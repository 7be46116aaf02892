"""Log of rejections and delays: one line per rule and interval rather than one per request."""

import logging
import time
from collections.abc import Iterable
from typing import Any

from proxy.core.context import Context
from proxy.traffic_rules.effects import ActiveRule
from proxy.traffic_rules.matching import MAX_NAME_LENGTH

_log = logging.getLogger("gantry.rules")

# Seconds between reports.
_REPORT_INTERVAL = 10.0


class ActivityLog:
    """Keeps the most recent effect of each rule and reports the number of effects periodically."""

    def __init__(self) -> None:
        self._reported: dict[str, int] = {}
        self._latest: dict[str, str] = {}
        self._reported_at = time.monotonic()

    def record(self, rule: str, subject: str) -> None:
        """Record the request or connection that a rule has rejected or delayed."""
        self._latest[rule] = subject

    def record_request(self, rule: str, context: Context) -> None:
        """Record a request that a rule has rejected or delayed."""
        channel = context.channel
        self.record(
            rule,
            f"{context.known_spec.name} from {_printable(channel.identity.client_id or 'an unnamed client')} at "
            f"{channel.peer.address}, topic {_printable(context.topic)}, group {_printable(context.group)}",
        )

    def report_if_due(self, rules: Iterable[ActiveRule[Any]]) -> None:
        """Report if the interval since the last report is over."""
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_INTERVAL:
            self._reported_at = now
            self.report(rules)

    def report(self, rules: Iterable[ActiveRule[Any]]) -> None:
        """Log one line for each rule that rejected or delayed requests or connections since the last report."""
        for active in rules:
            total = active.counts.enforced
            new, self._reported[active.name] = total - self._reported.get(active.name, 0), total
            latest = self._latest.pop(active.name, None)
            if new > 0 and latest is not None:
                _log.warning(
                    "rule %s (%s): %d rejected or delayed since the last report, most recently %s",
                    active.name,
                    active.rule.kind,
                    new,
                    latest,
                )


def _printable(name: str | None) -> str:
    """Return a client-chosen name, shortened and escaped for the log."""
    name = (name or "-")[:MAX_NAME_LENGTH]
    return name if name.isprintable() else repr(name)
