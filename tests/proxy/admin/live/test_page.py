"""The live page in a browser (Debian's Chromium), on a replica with traffic of both protocols."""

import asyncio
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from proxy.admin.live import pages
from remoting.codes import RequestCode
from tests.cluster.client import Client, send_fields, v2
from tests.proxy.admin.http.replicas import READ, Replica, replica
from tests.proxy.admin.live.browser import browsing, check_accessibility
from tests.proxy.operations.observations import observation

pytestmark = [pytest.mark.anyio, pytest.mark.external]


@pytest.fixture
async def busy(tmp_path: Path) -> AsyncIterator[Replica]:
    """A replica with a client that sends continuously, and sometimes fails."""
    async with replica(tmp_path / "store") as served, Client(served.address) as client:
        sending = asyncio.ensure_future(_send(client))
        yield served
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send(client: Client) -> None:
    await client.heartbeat({"billing": ["orders"]})
    for number in range(100_000):
        # An invalid name that would be a script if the page did not escape it.
        for topic in ("orders", "bills") if number % 20 else ("<script>alert(1)</script>",):
            await client.ask(RequestCode.SEND_MESSAGE_V2, v2(send_fields(topic)), b"a body")
        await asyncio.sleep(0.02)


async def test_page_shows_the_traffic_of_a_busy_replica(busy: Replica) -> None:
    async with browsing(color_scheme="dark") as page:
        await page.goto(str(busy.app.admin.url))
        await expect(page.locator("#state")).to_have_text("ready")
        await expect(page.locator("#t-topics tbody tr").first).to_be_visible()
        await expect(page.locator("#t-topics")).to_contain_text("orders")
        await expect(page.locator("#t-brokers")).to_contain_text("broker-a")
        await expect(page.locator("#t-clients tbody tr").first).to_be_visible()
        await expect(page.locator("#codes")).to_contain_text("SEND_MESSAGE_V2")
        await expect(page.locator("#n-requests")).to_contain_text("/s")
        await expect(page.locator("#c-requests polygon").first).to_be_attached()
        # No area covers the numbers of the axis.
        await expect(page.locator("#c-requests polygon ~ text")).to_have_count(2)
        await expect(page.locator("#t-topics")).to_contain_text("<script>alert(1)</script>")
        await page.locator("#f-topic").fill("BILL")
        await expect(page.locator("#t-topics tbody tr")).to_have_count(1)
        await page.locator("#f-topic").fill("")
        await page.locator("#tail [name=topic]").fill("orders")
        await page.locator("#tap").click()
        await expect(page.locator("#requests li").first).to_contain_text("SEND_MESSAGE_V2 · orders")
        await page.locator("#tap").click()
        await expect(page.locator("#tap")).to_have_text("Watch")
        await page.locator("#range").select_option("hour")
        await expect(page.locator("#c-requests polygon").first).to_be_attached()
        for theme in ("dark", "light"):
            await expect(page.locator("html")).to_have_attribute("data-theme", theme)
            await check_accessibility(page)
            await page.locator("#theme").click()


async def test_page_asks_for_a_token_if_one_is_required(tmp_path: Path) -> None:
    async with replica(tmp_path, admin={"local": "none"}) as served, browsing() as page:
        await page.goto(str(served.app.admin.url))
        await expect(page.locator("#login")).to_be_visible()
        await page.locator("#token").fill(READ)
        await page.locator("#login button").click()
        await expect(page.locator("#state")).to_have_text("ready")
        await expect(page.locator("#login")).to_be_hidden()


async def test_login_of_a_user_without_a_role_is_reported_and_takes_nothing_away(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text('[users.norm]\nsecret = "a-secret-of-norm"\n')
    users.chmod(0o600)
    async with replica(tmp_path / "store", auth={"users": users}) as served, browsing() as page:
        await page.goto(str(served.app.admin.url))
        await page.locator("#log-in").click()
        await page.locator("#token").fill("a-secret-of-norm")
        await page.locator("#user").fill("norm")
        await page.locator("#login button").click()
        await expect(page.locator("#report")).to_contain_text("norm has no role here")
        await expect(page.locator("#who")).to_have_text("local (read)")
        await expect(page.locator("#state")).to_have_text("ready")


async def test_page_shows_a_drain(tmp_path: Path) -> None:
    async with replica(tmp_path) as served, browsing() as page:
        await page.goto(str(served.app.admin.url))
        await expect(page.locator("#state")).to_have_text("ready")
        await served.post("/v1/drain")
        await expect(page.locator("#state")).to_have_text("draining")
        await served.post("/v1/resume")
        await served.post("/v1/health/fail", {"reason": "a test"})
        await expect(page.locator("#state")).to_contain_text("a test")


async def test_page_shows_that_the_replica_does_not_answer(tmp_path: Path) -> None:
    async with replica(tmp_path) as served, browsing() as page:
        await page.goto(str(served.app.admin.url))
        await expect(page.locator("#state")).to_have_text("ready")
        # No response ever arrives.
        await page.route("**/v1/live?*", lambda route: None)
        await expect(page.locator("#state")).to_have_text("out of reach")


async def test_table_that_cannot_be_read_shows_its_error_and_no_other_is_lost(tmp_path: Path) -> None:
    async with replica(tmp_path) as served, browsing() as page, Client(served.address, "reads") as client:
        await client.heartbeat({"billing": ["orders"]})
        problem = '{"detail": "worker 0 does not answer"}'
        refusal: dict[str, Any] = {"status": 503, "content_type": "application/problem+json", "body": problem}
        await page.route("**/v1/consumer-groups**", lambda route: route.fulfill(**refusal))
        await page.goto(str(served.app.admin.url))
        await expect(page.locator("#t-groups")).to_have_text("worker 0 does not answer")
        await expect(page.locator("#n-attention")).to_have_text("\N{EN DASH}")
        await expect(page.locator("#t-clients tbody tr").first).to_contain_text("reads")
        await page.unroute("**/v1/consumer-groups**")
        await expect(page.locator("#n-attention")).to_have_text("0")


async def test_broker_that_does_not_answer_is_said_once(tmp_path: Path) -> None:
    async with replica(tmp_path) as served, browsing() as page:
        groups = {"items": [], "total": 0, "next": None, "left_out": 0, "unanswered": ["broker-a"]}
        await page.route("**/v1/consumer-groups**", lambda route: route.fulfill(json=groups))
        await page.goto(str(served.app.admin.url))
        await expect(page.locator("#t-groups")).to_contain_text("no answer from broker-a")
        await expect(page.locator("#t-brokers tbody tr")).to_contain_text("no answer")
        await expect(page.locator("#n-attention")).to_have_text("0")
        await page.goto(f"{served.app.admin.url}/#/groups")
        await expect(page.locator("#detail")).to_contain_text("no answer from broker-a")


async def test_page_shows_the_busiest_of_thousands_of_topics(tmp_path: Path) -> None:
    async with replica(tmp_path) as served, browsing() as page:
        await page.goto(str(served.app.admin.url))
        await expect(page.locator("#state")).to_have_text("ready")
        for number in range(5_000):
            served.app.metrics.observe(observation(topic=f"topic-{number}"))
        await expect(page.locator("#t-topics tbody tr")).to_have_count(40)
        answer = await served.read.get("/v1/live")
        assert len(answer.content) < 50_000


def test_every_file_of_the_page_is_served() -> None:
    folder = files("proxy.admin.live") / "page"
    assert {file.name for file in folder.iterdir()} == {name for name, _ in pages.FILES.values()}


async def test_files_need_no_role_and_figures_do(tmp_path: Path) -> None:
    async with replica(tmp_path, admin={"local": "none"}) as served:
        for path in ("/", "/ui/main.js", "/ui/page.css", "/ui/icon.svg"):
            answer = await served.read.get(path)
            assert answer.status_code == 200
            assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert (await served.read.get("/v1/live")).status_code == 401
        assert (await served.write.get("/v1/live?since=0")).status_code == 200


async def test_figures_since_no_time_are_refused(tmp_path: Path) -> None:
    async with replica(tmp_path) as served:
        for since in ("nonsense", "-1", "1e3", "1" * 12):
            answer = await served.read.get("/v1/live", params={"since": since})
            assert (answer.status_code, answer.json()["faults"][0]["where"]) == (422, "query since")
