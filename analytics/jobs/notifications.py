"""Messages about incidents: a webhook and e-mail, once when an incident is found and once when it is over.

A state file remembers what was announced, so that a schedule may run detection as often as it likes.
"""

import json
import logging
import smtplib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from hashlib import sha256
from pathlib import Path
from typing import Any

from analytics.incidents.incident import Incident
from analytics.jobs.streaming import post

_log = logging.getLogger("gantry.analytics")
# Seconds by which the spans of two runs may be apart and still mean the same incident.
_SLACK = 1800.0
# Seconds to wait for a mail server.
_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class Mail:
    """server: HOST:PORT; sender, recipient: addresses."""

    server: str
    sender: str
    recipient: str


@dataclass(frozen=True, slots=True)
class Channels:
    """Where messages go, and the file that remembers them."""

    webhook: str | None = None
    mail: Mail | None = None
    state: Path | None = None


def announce(incidents: Sequence[Incident], channels: Channels) -> bool:
    """Send what is new: incidents that were not announced, and announced ones that are over. Muted ones are left out.

    Return whether every channel took it. What a channel did not take is sent again by the next run.
    """
    former = _load(channels.state)
    shown = [each for each in incidents if each.muted is None]
    news = [(_state(each), each) for each in shown if _is_news(each, _announced(each, former))]
    taken = True
    if news:
        senders: list[Callable[[Sequence[tuple[str, Incident]]], bool]] = []
        if channels.webhook is not None:
            url = channels.webhook
            senders.append(lambda some: _post(url, some))
        if channels.mail is not None:
            mail = channels.mail
            senders.append(lambda some: _mail(mail, some))
        # One channel's failure does not keep the other from being tried.
        for send in senders:
            taken = send(news) and taken
    if taken and channels.state is not None:
        _save(channels.state, shown, former)
    return taken


def _state(incident: Incident) -> str:
    return "open" if incident.open else "over"


def _is_news(incident: Incident, former: dict[str, Any] | None) -> bool:
    """Return whether to announce an incident: it is new, its state has changed, or it goes on after it seemed over."""
    if former is None:
        return True
    if former["state"] == "over":
        return incident.open and incident.end > float(former["end"])
    return not incident.open


def _announced(incident: Incident, former: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the last announcement of an incident. Onsets may move as records arrive.

    Only one that was open may lie before: after one that is over, the next is another one.
    """
    same = [each for each in former if each["kind"] == incident.kind and each["about"] == dict(incident.about)]
    for slack in (0.0, _SLACK):
        for each in reversed(same):
            near = each["start"] <= incident.end + slack and incident.start <= each["end"] + slack
            if near and (not slack or each["state"] == "open"):
                return dict(each)
    return None


def _post(url: str, news: Sequence[tuple[str, Incident]]) -> bool:
    content = {"incidents": [{**each.json(), "state": state} for state, each in news]}
    key = sha256(json.dumps([[state, each.kind, each.start] for state, each in news]).encode()).hexdigest()[:32]
    return post(url, content, key)


def _mail(mail: Mail, news: Sequence[tuple[str, Incident]]) -> bool:
    message = EmailMessage()
    still = sum(state == "open" for state, _ in news)
    message["Subject"] = f"Gantry: {len(news)} incident{'' if len(news) == 1 else 's'}, {still} going on"
    message["From"], message["To"] = mail.sender, mail.recipient
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n\n".join(_paragraph(state, each) for state, each in news) + "\n")
    host, _, port = mail.server.rpartition(":")
    try:
        with smtplib.SMTP(host, int(port), timeout=_TIMEOUT) as server:
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls()
            server.send_message(message)
    except (OSError, smtplib.SMTPException) as error:
        _log.error("the mail server %s did not take the incidents: %s", mail.server, error)
        return False
    return True


def _paragraph(state: str, incident: Incident) -> str:
    start, end = (datetime.fromtimestamp(time, UTC) for time in (incident.start, incident.end))
    until = "it goes on" if state == "open" else f"over since {end:%H:%M}"
    head = f"{incident.severity.upper()} {incident.kind.replace('_', ' ')}, since {start:%Y-%m-%d %H:%M} UTC, {until}"
    return f"{head}\n{incident.happened}\nWhat to do: {incident.advice}"


def _load(path: Path | None) -> list[dict[str, Any]]:
    """Return what was announced. Raises ValueError for a file that is no state."""
    if path is None or not path.exists():
        return []
    try:
        return list(json.loads(path.read_text(encoding="utf-8"))["incidents"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is no state of announced incidents: remove it to announce all again") from None


def _save(path: Path, shown: Sequence[Incident], former: Sequence[dict[str, Any]]) -> None:
    """Remember the incidents of this run, and those that its records no longer contain for a week."""
    now = [
        {
            "kind": each.kind,
            "about": dict(each.about),
            "start": each.start,
            "end": each.end,
            "state": _state(each),
        }
        for each in shown
    ]
    newest = max((each.end for each in shown), default=0.0)
    old = [each for each in former if each["end"] > newest - 7 * 86400 and each not in now]
    half = path.with_name(path.name + ".part")
    half.write_text(json.dumps({"incidents": [*old, *now]}, indent=1) + "\n", encoding="utf-8")
    half.replace(path)
