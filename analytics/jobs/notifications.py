"""Messages about incidents: a webhook and e-mail, once when one is found and once when it is over or withdrawn.

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
# Seconds for which an announcement is remembered after the records no longer contain its incident.
_REMEMBER = 7 * 86400.0
# Seconds to wait for a mail server.
_TIMEOUT = 20.0

# An announced incident as the state file has it, with the fields `_FIELDS`; `state` is open, over or withdrawn.
_Announced = dict[str, Any]
_FIELDS = frozenset(("kind", "about", "start", "end", "state", "severity", "happened"))
# An incident as webhooks get it: the fields of `Incident.json` and `state`.
_Message = dict[str, Any]


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
    """Send the news: incidents that were not announced, and announced ones that are over or no longer found. Muted
    ones are left out.

    Return whether every channel took them. News that a channel did not take are sent again by the next run.
    """
    former = _load(channels.state)
    shown = [each for each in incidents if each.muted is None]
    news = [_message(each) for each in shown if _is_news(each, _announced(each, former))]
    gone = [each for each in former if each["state"] == "open" and not any(_is_same(each, one) for one in incidents)]
    news += map(_withdrawal, gone)
    taken = True
    if news:
        senders: list[Callable[[Sequence[_Message]], bool]] = []
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
        _save(channels.state, shown, [{**each, "state": "withdrawn"} if each in gone else each for each in former])
    return taken


def _state(incident: Incident) -> str:
    return "open" if incident.open else "over"


def _is_news(incident: Incident, former: _Announced | None) -> bool:
    """Return whether to announce an incident: it is new, its state has changed, or it goes on after it seemed over."""
    if former is None or former["state"] == "withdrawn":
        return True
    if former["state"] == "over":
        return incident.open and incident.end > float(former["end"])
    return not incident.open


def _announced(incident: Incident, former: Sequence[_Announced]) -> _Announced | None:
    """Return the last announcement of an incident: one that overlaps with it if possible."""
    same = [each for each in former if _is_same(each, incident)]
    return max(same, key=lambda each: _is_near(each, incident, 0.0), default=None)


def _is_same(former: _Announced, incident: Incident) -> bool:
    """Return whether an announcement is of this incident. Onsets may move as records arrive.

    Only one that was open may lie before: after one that is over, the next is another one.
    """
    slack = _SLACK if former["state"] == "open" else 0.0
    about = former["kind"] == incident.kind and former["about"] == dict(incident.about)
    return about and _is_near(former, incident, slack)


def _is_near(former: _Announced, incident: Incident, slack: float) -> bool:
    return bool(former["start"] <= incident.end + slack and incident.start <= former["end"] + slack)


def _message(incident: Incident) -> _Message:
    return {**incident.json(), "state": _state(incident)}


def _withdrawal(former: _Announced) -> _Message:
    start, end = (datetime.fromtimestamp(former[name], UTC).isoformat() for name in ("start", "end"))
    return {
        **{name: former[name] for name in ("kind", "about", "severity", "happened")},
        "start": start,
        "end": end,
        "open": False,
        "advice": "Nothing: the records no longer show it, or show it as another incident.",
        "state": "withdrawn",
    }


def _post(url: str, news: Sequence[_Message]) -> bool:
    key = sha256(json.dumps([[each["state"], each["kind"], each["start"]] for each in news]).encode()).hexdigest()[:32]
    return post(url, {"incidents": news}, key)


def _mail(mail: Mail, news: Sequence[_Message]) -> bool:
    message = EmailMessage()
    still = sum(each["state"] == "open" for each in news)
    message["Subject"] = f"Gantry: {len(news)} incident{'' if len(news) == 1 else 's'}, {still} going on"
    message["From"], message["To"] = mail.sender, mail.recipient
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n\n".join(map(_paragraph, news)) + "\n")
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


def _paragraph(news: _Message) -> str:
    start, end = (datetime.fromisoformat(news[name]) for name in ("start", "end"))
    until = {"open": "it goes on", "over": f"over since {end:%H:%M}", "withdrawn": "withdrawn"}[news["state"]]
    kind = news["kind"].replace("_", " ")
    head = f"{news['severity'].upper()} {kind}, since {start:%Y-%m-%d %H:%M} UTC, {until}"
    return f"{head}\n{news['happened']}\nWhat to do: {news['advice']}"


def _load(path: Path | None) -> list[_Announced]:
    """Return the announced incidents. Raises ValueError for a file that is no state."""
    if path is None or not path.exists():
        return []
    try:
        announced: list[_Announced] = json.loads(path.read_text(encoding="utf-8"))["incidents"]
        return [each for each in announced if each.keys() >= _FIELDS]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is no state of announced incidents: remove it to announce all again") from None


def _save(path: Path, shown: Sequence[Incident], former: Sequence[_Announced]) -> None:
    """Remember the incidents of this run, and for a week those that its records no longer contain."""
    now = [
        {
            "kind": each.kind,
            "about": dict(each.about),
            "start": each.start,
            "end": each.end,
            "state": _state(each),
            "severity": each.severity,
            "happened": each.happened,
        }
        for each in shown
    ]
    old = [each for each in former if not any(_is_same(each, incident) for incident in shown)]
    oldest = max((each["end"] for each in (*now, *old)), default=0.0) - _REMEMBER
    remembered = [*(each for each in old if each["end"] > oldest), *now]
    half = path.with_name(path.name + ".part")
    half.write_text(json.dumps({"incidents": remembered}, indent=1) + "\n", encoding="utf-8")
    half.replace(path)
