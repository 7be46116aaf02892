"""The first screen of the page: the health of the service, the incidents, and advice."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from analytics.incidents.incident import SEVERITIES, Incident
from analytics.incidents.kinds import KINDS, Kind
from analytics.report.sections import clock

# Cards that are shown at once.
_CARDS = 3
# Kinds of the other incidents that are named.
_KINDS = 8


def first_screen(incidents: Sequence[Incident], zone: str) -> dict[str, Any]:
    """Return state (good, over, bad), title and lead of the verdict, and the cards: those that go on and the worst
    first. Known incidents of the mute file are left out.
    """
    shown = [each for each in incidents if each.muted is None]
    cards = [(each, _card(each, place, zone)) for place, each in enumerate(shown)]
    cards.sort(key=lambda pair: (not pair[0].open, SEVERITIES.index(pair[0].severity), -pair[0].score))
    ordered = [card for _, card in cards]
    still = [each for each in shown if each.open]
    muted = len(incidents) - len(shown)
    known = f" {muted} known {'incident is' if muted == 1 else 'incidents are'} not shown." if muted else ""
    if not shown:
        words = ("good", "Healthy", "No deviation from the usual traffic.")
    elif still:
        verb = "goes" if len(still) == 1 else "go"
        over = len(shown) - len(still)
        others = f", {over} {'is' if over == 1 else 'are'} over" if over else ""
        lead = f"{_many(len(still))} {verb} on{others}. Begin with the first."
        words = ("bad", "Not healthy", lead)
    else:
        end = "; all are over. The worst is first." if len(shown) > 1 else "; it is over."
        words = ("over", "Healthy again", f"{_many(len(shown))} happened{end}")
    state, title, lead = words
    rest = ordered[_CARDS:]
    # Names of their kinds, each once, in the order of the cards.
    kinds = list(dict.fromkeys(card["kind"].lower() for card in rest))
    more = f"{len(rest)} more: {', '.join(kinds[:_KINDS])}{', …' if len(kinds) > _KINDS else ''}"
    return {
        "state": state,
        "title": title,
        "lead": lead + known,
        "first": ordered[:_CARDS],
        "rest": rest,
        "more": more,
    }


def _many(count: int) -> str:
    return f"{count} incident{'' if count == 1 else 's'}"


def _card(incident: Incident, place: int, zone: str) -> dict[str, Any]:
    start, end = (datetime.fromtimestamp(time, ZoneInfo(zone)) for time in (incident.start, incident.end))
    if incident.open:
        span = f"since {start:%a %d %b} {clock(start)}"
    else:
        day = "" if start.date() == end.date() else f"{end:%a %d %b} "
        span = f"{start:%a %d %b} {clock(start)} to {day}{clock(end)}"
    return {
        "severity": incident.severity,
        "kind": incident.kind.replace("_", " ").capitalize(),
        "span": span,
        "impact": _impact(incident),
        "happened": incident.happened,
        "advice": incident.advice,
        "place": place,
    }


def _impact(incident: Incident) -> str:
    """Return the number of requests or messages, and of clients, that an incident affects."""
    impact = f"{incident.affected:,.0f} {KINDS[incident.kind].unit}"
    known = incident.clients > 1 and incident.kind != Kind.SERVICE_SILENCE
    return f"{impact}, {incident.clients:,} clients" if known else impact
