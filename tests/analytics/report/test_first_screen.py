"""The first screen of the page, and its drill-down in a browser."""

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from playwright.async_api import async_playwright, expect

from analytics.facts import Limits
from analytics.incidents.finding import Finding
from analytics.incidents.incident import Incident
from analytics.incidents.kinds import Kind
from analytics.incidents.tables import Tables
from analytics.lineage import lineage
from analytics.report.explorer import explorer
from analytics.report.first_screen import first_screen
from analytics.report.page import Origin, render, unbroken
from analytics.report.sentences import capacity_sentence

_BEGIN = 1792713600
_T = _BEGIN // 300
_TIMEOUT = 60_000


def _incident(kind: Kind = Kind.CONSUMER_STOPPED, severity: str = "critical", *, still: bool = False) -> Incident:
    about = {"group": "shop%orders-billing", "topic": "shop%orders"}
    found = Finding(kind, _BEGIN + 3600, _BEGIN + 7200, about, 0, 9, 20.0, open=still)
    return Incident(
        kind, severity, found.start, found.end, still, about, "It stopped </script>.", "Restart it.", 9, 1, (found,)
    )


def _tables() -> Tables:
    """Return two hours of sends to two topics, of which one has a group."""
    periods = range(_T, _T + 24)
    names = ("shop%orders", "shop%lost")
    totals = pd.concat(
        [
            pd.DataFrame({"t": periods, "dimension": dimension, "value": value, "n": 10.0, "received": 5.0})
            for dimension, values in (
                ("topic", names),
                ("grp", ("shop%orders-billing",)),
                ("tenant", ("shop",)),
                ("replica", ("a",)),
            )
            for value in values
        ]
    )
    flows = pd.concat(
        [
            pd.DataFrame({"t": periods, "op": op, "topic": topic, "grp": group, "n": 1.0, "m": 2.0})
            for op in ("send", "due")
            for topic, group in ((names[0], None), (names[1], None))
        ]
        + [
            pd.DataFrame(
                {"t": _T, "op": "receive", "topic": names[0], "grp": "shop%orders-billing", "n": [1.0], "m": [48.0]}
            ),
            pd.DataFrame({"t": _T, "op": "receive", "topic": names[0], "grp": "shop%idle", "n": [1.0], "m": [0.0]}),
        ]
    )
    members = pd.DataFrame(
        {
            "t": [_T // 2, _T // 2],
            "op": ["send", "receive"],
            "topic": names[0],
            "grp": [None, "shop%orders-billing"],
            "client": ["p1", "c1"],
            "m": [48.0, 48.0],
        }
    )
    columns = ("event", "t", "op", "topic", "grp", "broker", "replica", "client", "network", "sdk", "tenant", "n")
    events = pd.DataFrame(
        [
            dict.fromkeys(columns)
            | {"event": "failed", "t": _T + 3, "topic": names[0], "grp": "shop%orders-billing", "n": 4.0}
        ]
    )
    empty = pd.DataFrame()
    return Tables(totals, events, flows, empty, members, empty, empty, empty)


def test_verdict_says_whether_something_goes_on_and_shows_it_first() -> None:
    over, still = _incident(), _incident(Kind.SILENCE, "warning", still=True)
    assert first_screen([], "UTC")["title"] == "Healthy"
    assert first_screen([over], "UTC")["title"] == "Healthy again"
    verdict = first_screen([over, still], "Europe/Berlin")
    assert (verdict["title"], verdict["state"]) == ("Not healthy", "bad")
    assert verdict["lead"] == "1 incident goes on, 1 is over. Begin with the first."
    assert [card["kind"] for card in verdict["first"]] == ["Silence", "Consumer stopped"]
    assert verdict["first"][0]["span"] == "since Fri 23 Oct 03:00"
    assert [card["impact"] for card in verdict["first"]] == ["9 requests missing", "9 messages"]
    # The place in the embedded data, in any order of the cards.
    assert [card["place"] for card in verdict["first"]] == [1, 0]


def test_other_incidents_are_named_without_a_click() -> None:
    verdict = first_screen([_incident() for _ in range(3)] + [_incident(Kind.HOT_KEY, "info")] * 2, "UTC")
    assert (len(verdict["rest"]), verdict["more"]) == (2, "2 more: hot key")


def test_names_are_not_broken_at_hyphens_and_markup_stays_text() -> None:
    assert unbroken("Of broker broker-a, 9%: <b>-</b>") == (
        "Of broker <span class=name>broker-a,</span> 9%: <span class=name>&lt;b&gt;-&lt;/b&gt;</span>"
    )
    assert unbroken("x" * 20 + "-" + "y" * 20) == "x" * 20 + "-" + "y" * 20


def test_drill_down_has_series_lineage_and_orphans() -> None:
    data = explorer(_tables(), [_incident()], "UTC")
    assert (data["begin"], data["step"], data["points"]) == (_BEGIN, 300, 24)
    orders = data["dimensions"]["topic"]["shop%orders"]
    assert orders["requests"] == [10] * 24
    assert orders["failed"] == [0, 0, 0, 4] + [0] * 20
    group = data["dimensions"]["group"]["shop%orders-billing"]
    assert sum(group["due"]) == sum(group["taken"]) == 48
    assert data["incidents"][0]["dimension"] == "group"
    assert data["lineage"]["orphans"] == {"topics": ["shop%lost"], "groups": ["shop%idle"]}


def test_lineage_has_rates_and_their_change() -> None:
    (orders, lost) = sorted(lineage(_tables())["topics"], key=lambda each: each["name"], reverse=True)
    assert (orders["rate"], lost["groups"]) == (24.0, [])
    (group,) = orders["groups"]
    assert (group["before"], group["after"]) == (48.0, 0.0)
    assert [each["name"] for each in group["consumers"]["busiest"]] == ["c1"]


def _page() -> str:
    incidents = [_incident()]
    origin = Origin(
        "Traffic", datetime.fromtimestamp(_BEGIN, UTC), datetime.fromtimestamp(_BEGIN + 7200, UTC), "UTC", 1, 1, []
    )
    return render(origin, [], [], datetime.now(UTC), incidents, explorer(_tables(), incidents, "UTC"))


def test_embedded_data_cannot_end_its_script() -> None:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', _page())
    assert json.loads(text)["incidents"][0]["happened"] == "It stopped </script>."


@pytest.mark.anyio
@pytest.mark.external
async def test_incident_opens_its_group_in_the_charts(tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    assert chromium is not None, "needs Chromium: apt-get install chromium"
    (tmp_path / "page.html").write_text(_page(), encoding="utf-8")
    complaints: list[str] = []
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=_TIMEOUT)
        page = await browser.new_page(viewport={"width": 390, "height": 844})
        page.set_default_timeout(_TIMEOUT)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.goto((tmp_path / "page.html").as_uri())
        await expect(page.locator("#verdict h2")).to_have_text("Healthy again")
        await page.click("[data-incident]")
        await expect(page.locator("#value")).to_have_value("shop%orders-billing")
        await expect(page.locator("#plots canvas")).to_have_count(4)
        await expect(page.locator("#graph svg")).to_contain_text("shop%orders-billing, 1 consumer")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        await page.select_option("#dimension", "topic")
        await page.click("#values button:has-text('shop%lost')")
        await expect(page.locator("#graph svg")).to_contain_text("nobody takes these messages")
        await browser.close()
    assert complaints == []


@pytest.mark.parametrize(
    ("limits", "days", "per_day", "said"),
    [
        (Limits(), 247637.0, 0.001, "suffices for more than two years"),
        (Limits(), 12.4, 3.0, "suffices for 12 days"),
        (Limits(), None, None, "A trend needs three days"),
        (Limits(replicas=3), 0.0, 1.0, "The limit is reached: 3 replicas may serve"),
        (Limits(replicas=3), None, 0.0, "(the facts file); the busy hour uses 10 % of it, without growth"),
    ],
)
def test_forecast_names_its_figures(limits: Limits, days: float | None, per_day: float | None, said: str) -> None:
    row = {
        "measure": "requests_per_s",
        "peak": 10.0,
        "limit": 100.0,
        "per_day": per_day,
        "fit": 0.5,
        "days_until_limit": days,
    }
    sentence = capacity_sentence(pd.DataFrame([row]), limits)
    assert said in sentence
    assert ("assumption" in sentence) == (limits == Limits())
