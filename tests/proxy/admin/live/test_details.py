"""The pages of topics, groups, clients, connections, brokers and replicas, in a browser."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from tests.cluster.client import create_topic
from tests.proxy.admin.dead_letters import bury
from tests.proxy.admin.http.replicas import GROUP, PUSH_GROUP, READ, UNIQUE_ID, WRITE, Stage, stage
from tests.proxy.admin.live.addresses import addresses
from tests.proxy.admin.live.browser import NARROW, WIDE, browsing, check_accessibility, log_in, open_page

pytestmark = [pytest.mark.anyio, pytest.mark.external]


@pytest.fixture
async def staged(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path / "store") as staged:
        yield staged


async def confirm(page: Page, button: str, outcome: str) -> None:
    """Click a button, confirm, and expect the report of the outcome."""
    await page.locator("#detail").get_by_role("button", name=button).click()
    await page.get_by_role("dialog").get_by_role("button", name=button).click()
    await expect(page.locator("#report")).to_contain_text(outcome)


@pytest.mark.parametrize(("width", "theme"), [(WIDE, "dark"), (NARROW, "light")])
async def test_every_page_is_accessible_and_fits_the_width(staged: Stage, width: int, theme: str) -> None:
    url = staged.replica.app.admin.url
    async with browsing(width, color_scheme=theme) as page:
        await log_in(page, url, WRITE)
        for name, address in (await addresses(staged)).items():
            await open_page(page, url, address)
            await check_accessibility(page)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, name


async def test_group_page_explains_and_its_dead_letters_are_resent_and_purged(staged: Stage) -> None:
    url = staged.replica.app.admin.url
    async with browsing() as page:
        await log_in(page, url, WRITE)
        # A row of the overview opens.
        await page.locator("#t-groups").get_by_role("link", name=GROUP).click()
        detail = page.locator("#detail")
        await expect(detail.locator(".title")).to_contain_text(GROUP)
        await expect(detail.locator(".findings")).to_contain_text("192.0.2.7@4711 fails on messages of")
        await expect(detail.locator(".findings")).to_contain_text("1 dead letter: failed in all deliveries")
        await expect(detail.get_by_role("button", name="member", exact=True)).to_be_in_viewport()
        await expect(detail.get_by_role("table", name="Members")).to_contain_text("192.0.2.7@4711")
        await detail.get_by_label(f"choose {UNIQUE_ID}").check()
        await confirm(page, "Resend chosen", f"1 message sent to %RETRY%{GROUP}")
        (message,) = await staged.remoting.pull(f"%RETRY%{GROUP}", GROUP)
        assert message.body == b"secret body"
        await confirm(page, "Purge all", "deleted at broker-a")
        await expect(detail.get_by_label("Dead letters").get_by_text("none")).to_be_visible()
    audit = (await staged.replica.get("/v1/audit"))["items"]
    assert [(entry["caller"], entry["method"]) for entry in audit[:2]] == [
        ("write_token", "DELETE"),
        ("write_token", "POST"),
    ]


async def test_dead_letters_that_could_not_be_read_are_read_again_and_lose_their_choice_when_resent(
    staged: Stage,
) -> None:
    url = staged.replica.app.admin.url
    async with browsing() as page:
        await log_in(page, url, WRITE)
        problem = {"status": 503, "content_type": "application/problem+json", "body": '{"detail": "no broker answers"}'}
        await page.route("**/dead-letters?**", lambda route: route.fulfill(**problem))
        await open_page(page, url, f"groups/{GROUP}")
        panel = page.get_by_role("region", name="Dead letters", exact=True)
        await expect(panel).to_contain_text("no broker answers")
        await page.unroute("**/dead-letters?**")
        every, one = panel.get_by_label("all shown"), panel.get_by_label(f"choose {UNIQUE_ID}")
        await every.check()
        await expect(one).to_be_checked()
        await one.uncheck()
        await expect(every).not_to_be_checked()
        await every.check()
        await expect(one).to_be_checked()
        await confirm(page, "Resend chosen", f"1 message sent to %RETRY%{GROUP}")
        await expect(one).not_to_be_checked()
        await expect(every).not_to_be_checked()


async def test_dead_letters_beyond_the_first_page_are_shown_and_all_are_resent(staged: Stage) -> None:
    url = staged.replica.app.admin.url
    topic = await create_topic(staged.replica.address, "fatal", 1)
    await bury(staged.remoting, topic, GROUP, range(101))
    async with browsing() as page:
        await log_in(page, url, WRITE)
        await open_page(page, url, f"groups/{GROUP}")
        panel = page.get_by_role("region", name="Dead letters", exact=True).first
        rows = panel.locator("tbody tr")
        await expect(rows).to_have_count(100)
        await panel.get_by_role("button", name="Older").click()
        await expect(rows).to_have_count(2)
        await expect(panel.get_by_role("button", name="Older")).to_be_disabled()
        await expect(panel.get_by_role("button", name="Older")).to_have_css("opacity", "0.5")
        await panel.get_by_role("button", name="Newer").click()
        await expect(rows).to_have_count(100)
        await confirm(page, "Resend all", "102 dead letters sent")
    found = await staged.remoting.pull_all(102, f"%RETRY%{GROUP}", GROUP)
    assert len(found) == 102


async def test_reset_shows_its_effect_before_it_moves_the_group(staged: Stage) -> None:
    await staged.replica.post(f"/v1/consumer-groups/{GROUP}/reset-offset", {"topic": staged.topic, "to": "earliest"})
    url = staged.replica.app.admin.url
    async with browsing() as page:
        await log_in(page, url, WRITE)
        await open_page(page, url, f"groups/{GROUP}")
        panel = page.locator("#detail section[aria-label='Reset offsets']")
        await panel.get_by_role("button", name="Dry run").click()
        await expect(panel.get_by_role("table")).to_contain_text("broker-a:0")
        await expect(panel).to_contain_text("1 members are connected")
        path = f"/v1/consumer-groups/{GROUP}/lag"
        assert (await staged.replica.get(path, topic=staged.topic))["lag"] == 1
        await confirm(page, "Reset", "2 queues reset")
        assert (await staged.replica.get(path, topic=staged.topic))["lag"] == 0


async def test_reset_carries_out_the_dry_run_that_is_shown(staged: Stage) -> None:
    """Another choice needs another dry run, also if the dry run of the first one is answered after it."""
    path = f"/v1/consumer-groups/{GROUP}"
    await staged.replica.post(f"{path}/reset-offset", {"topic": staged.topic, "to": "earliest"})
    url = staged.replica.app.admin.url
    async with browsing() as page:
        await log_in(page, url, WRITE)
        await open_page(page, url, f"groups/{GROUP}")
        panel = page.locator("#detail section[aria-label='Reset offsets']")
        plan, dry_run = panel.get_by_role("table"), panel.get_by_role("button", name="Dry run")
        to = panel.get_by_label("to", exact=True)
        await dry_run.click()
        await expect(plan).to_be_visible()
        await to.select_option("earliest")
        await expect(plan).to_have_count(0)
        await to.select_option("time")
        await panel.get_by_label("time").fill("2100-01-01T00:00:00")
        await dry_run.click()
        await expect(plan).to_be_visible()
        await panel.get_by_label("time").fill("2000-01-01T00:00:00")
        await expect(panel.get_by_role("button", name="Reset")).to_have_count(0)
        released = asyncio.Event()

        async def delay(route: Route) -> None:
            await released.wait()
            await route.continue_()

        await page.route("**/reset-offset", delay)
        await dry_run.click()
        await to.select_option("latest")
        async with page.expect_response("**/reset-offset"):
            released.set()
        await expect(plan).to_have_count(0)
        await dry_run.click()
        await panel.get_by_role("button", name="Reset").click()
        await expect(page.get_by_role("dialog")).to_contain_text(f"Move {GROUP} in {staged.topic} to the end?")
        await page.get_by_role("dialog").get_by_role("button", name="Reset").click()
        await expect(page.locator("#report")).to_contain_text("2 queues reset")
    assert (await staged.replica.get(f"{path}/lag", topic=staged.topic))["lag"] == 0


async def test_page_of_another_replica_neither_shows_nor_drains_this_one(staged: Stage) -> None:
    url = staged.replica.app.admin.url
    async with browsing() as page:
        await log_in(page, url, WRITE)
        await open_page(page, url, "replicas/gone")
        await expect(page.get_by_role("region", name="Replica", exact=True)).to_contain_text("there is no replica gone")
        await confirm(page, "Drain", "there is no replica gone")
        name = (await staged.replica.get("/v1/live"))["replica"]
        assert not staged.replica.app.core.drain.draining
        await open_page(page, url, f"replicas/{name}")
        uptime = page.get_by_role("region", name="Replica", exact=True).locator("dt", has_text="uptime")
        await expect(uptime.locator("+ dd")).to_have_text(re.compile(r"^\d+ (s|min|h)$"))
        await confirm(page, "Drain", "the replica drains")
    assert staged.replica.app.core.drain.draining


async def test_retries_that_wait_for_a_group_without_members_need_attention(staged: Stage) -> None:
    """And they are not in the sum that the lag of a queue is compared with."""
    path = f"/v1/consumer-groups/{GROUP}"
    waiting = {"state": "offline", "members": [], "lag": 0, "retry_backlog": 3, "dead_letters": 0}
    group = {**(await staged.replica.get(path)), **waiting}
    summary = {**(await staged.replica.get("/v1/consumer-groups"))["items"][0], **waiting, "members": 0}
    queue = {"broker": "broker-a", "queue": 0, "end": 2, "consumed": 0, "lag": 2, "consumed_until": None}
    queues = [{**queue, "topic": "orders"}, {**queue, "topic": f"%RETRY%{GROUP}", "end": 3, "lag": 3}]
    progress = {"group": GROUP, "lag": 5, "queues": queues, "unanswered": []}
    async with browsing() as page:

        async def answer(route: Route) -> None:
            url = route.request.url.partition("?")[0]
            if url.endswith("/consumer-groups"):
                await route.fulfill(json={"items": [summary], "total": 1, "next": None, "unanswered": []})
            elif url.endswith(path):
                await route.fulfill(json=group)
            elif url.endswith("/lag"):
                await route.fulfill(json=progress)
            else:
                await route.continue_()

        await page.route("**/v1/consumer-groups**", answer)
        url = staged.replica.app.admin.url
        await page.goto(str(url))
        await expect(page.locator("#n-attention")).to_have_text("1")
        for reason in ("lag", "retries", "dead letters"):
            await expect(page.locator("#t-groups").get_by_role("button", name=reason)).to_be_in_viewport()
        await open_page(page, url, f"groups/{GROUP}")
        findings = page.locator("#detail .findings")
        await expect(findings).to_contain_text("It has no member, and 3 messages wait")
        await expect(findings).to_contain_text("broker-a:0 of orders: 2 messages of 2")


async def test_client_page_shows_its_stacks_and_disconnects(staged: Stage) -> None:
    url = staged.replica.app.admin.url
    async with browsing() as page:
        await log_in(page, url, WRITE)
        await open_page(page, url, "clients/192.0.2.7%404711")
        detail = page.locator("#detail")
        await expect(detail.get_by_role("table", name="Connections")).to_contain_text("192.0.2.7@4711")
        await detail.get_by_role("button", name="Show thread stacks").click()
        await expect(detail.get_by_label("Thread stacks")).to_have_text("main at work")
        await confirm(page, "Disconnect", "1 connections closed")
        await expect(detail.get_by_text("no connection")).to_be_visible()


@pytest.mark.parametrize("token", [None, READ])
async def test_readers_have_no_actions(staged: Stage, token: str | None) -> None:
    url = staged.replica.app.admin.url
    async with browsing() as page:
        if token is not None:
            await log_in(page, url, token)
        for name, address in (await addresses(staged)).items():
            if name in ("group", "client", "connection", "replica"):
                await open_page(page, url, address)
                await expect(page.locator("#detail .danger, #detail input[type=checkbox]")).to_have_count(0)


async def test_logout_removes_the_actions(staged: Stage) -> None:
    url = staged.replica.app.admin.url
    async with browsing() as page:
        await log_in(page, url, WRITE)
        await open_page(page, url, "clients/192.0.2.7%404711")
        await expect(page.locator("#detail .danger")).to_have_count(1)
        # A reload keeps the session.
        await page.reload()
        await expect(page.locator("#detail .danger")).to_have_count(1)
        await page.locator("#log-out").click()
        await expect(page.locator("#detail .danger")).to_have_count(0)
        await expect(page.locator("#who")).to_have_text("local (read)")


async def test_search_and_sorting_work_with_the_keyboard(staged: Stage) -> None:
    async with browsing() as page:
        await page.goto(str(staged.replica.app.admin.url))
        await page.keyboard.press("/")
        await expect(page.locator("#q")).to_be_focused()
        await page.keyboard.type("bill")
        await page.keyboard.press("Enter")
        await expect(page.locator("#detail")).to_contain_text(GROUP)
        await page.locator("nav").get_by_role("link", name="Groups").press("Enter")
        table = page.get_by_role("table", name="Consumer groups")
        names = table.locator("tbody td:first-child")
        await expect(names).to_have_text(["billing", "shipping"])
        header = table.get_by_role("button", name="group", exact=True)
        await header.press("Enter")
        await header.press("Enter")
        await expect(names).to_have_text(["shipping", "billing"])
        await expect(table.locator("th").first).to_have_attribute("aria-sort", "descending")
        # The order stays when the rows are read again.
        await page.get_by_label("state").select_option("online")
        await expect(names).to_have_text(["shipping", "billing"])
        await names.first.get_by_role("link").press("Enter")
        await expect(page.locator("#detail .title")).to_be_focused()
        await page.go_back()
        await expect(names).to_have_count(2)


async def test_search_reads_every_page_and_lists_say_that_they_are_cut(staged: Stage) -> None:
    async with browsing() as page:

        async def shorten(route: Route) -> None:
            """A list of two groups needs two pages."""
            url = route.request.url.replace("limit=1000", "limit=1").replace("limit=100", "limit=1")
            await route.continue_(url=url)

        await page.route("**/v1/consumer-groups?**", shorten)
        url = staged.replica.app.admin.url
        await open_page(page, url, f"search/{PUSH_GROUP}")
        groups = page.get_by_role("region", name="Consumer groups", exact=True)
        await expect(groups.get_by_role("link")).to_have_text([PUSH_GROUP])
        await open_page(page, url, "groups")
        await expect(page.locator("#detail")).to_contain_text("1 of 2: the other pages have the rest")
        names = page.get_by_role("table", name="Consumer groups").locator("tbody tr td:first-child")
        await expect(names).to_have_text([GROUP])
        await page.get_by_role("button", name="Next page").click()
        await expect(names).to_have_text([PUSH_GROUP])
        await expect(page.get_by_role("button", name="Next page")).to_be_disabled()
        await page.get_by_label("order").select_option("-dead_letters")
        await expect(names).to_have_text([GROUP])
        await page.get_by_role("button", name="Next page").click()
        await page.get_by_role("button", name="First page").click()
        await expect(names).to_have_text([GROUP])
        await page.get_by_label("state").select_option("stuck")
        await expect(names).to_have_count(0)


async def test_unknown_names_are_reported(staged: Stage) -> None:
    async with browsing() as page:
        await open_page(page, staged.replica.app.admin.url, "groups/nobody")
        await expect(page.locator("#detail section").first).to_contain_text("nobody")
        await expect(page.locator("#state")).to_have_text("ready")


async def test_topic_page_shows_its_queues(staged: Stage) -> None:
    async with browsing() as page:
        await open_page(page, staged.replica.app.admin.url, f"topics/{staged.topic}")
        queues = page.locator("#detail").get_by_role("table", name="Queues")
        (first, *_) = (await staged.replica.get(f"/v1/topics/{staged.topic}/queues"))["queues"]
        await expect(queues.locator("tbody tr").first).to_contain_text("broker-a:0")
        await expect(queues.locator("tbody tr").first.locator("td").nth(2)).to_have_text(str(first["end"]))


async def test_message_browser_shows_the_answer_to_the_last_question(staged: Stage) -> None:
    """A slow answer to an earlier one is dropped."""
    await staged.remoting.send(staged.topic, b"first copy", {"UNIQ_KEY": "copy-1", "TAGS": "copies"})
    await staged.remoting.send(staged.topic, b"second copy", {"UNIQ_KEY": "copy-1", "TAGS": "copies"})
    async with browsing() as page:
        await open_page(page, staged.replica.app.admin.url, f"topics/{staged.topic}")
        released = asyncio.Event()

        async def delay(route: Route) -> None:
            if "tag=slow" in route.request.url:
                await released.wait()
            await route.continue_()

        await page.route("**/messages?**", delay)
        browser = page.get_by_role("region", name="Messages", exact=True)
        rows = browser.locator("tbody tr")
        for tag in ("slow", "copies"):
            await browser.get_by_label("tag").fill(tag)
            await browser.get_by_role("button", name="Show").click()
        await expect(rows).to_have_count(2)
        async with page.expect_response(lambda response: "tag=slow" in response.url):
            released.set()
        await expect(rows).to_have_count(2)
        # Each copy has a page of its own.
        for row in (0, 1):
            place = await rows.nth(row).locator("td").nth(2).inner_text()
            await rows.nth(row).get_by_role("link", name="copy-1").click()
            await expect(page.get_by_role("region", name="Message", exact=True)).to_contain_text(place)
            await page.go_back()
            await expect(rows).to_have_count(2)


async def test_message_page_shows_exact_json_and_resends_to_one_group(staged: Stage) -> None:
    body = b'{"order":9007199254740993,"paid":1.0,"items":[],"text":"a\\"b, {c}"}'
    await staged.remoting.send(staged.topic, body, {"UNIQ_KEY": "exact-1"})
    url = staged.replica.app.admin.url
    async with browsing() as page:
        await log_in(page, url, WRITE)
        await open_page(page, url, f"messages/{staged.topic}%2Fexact-1")
        detail = page.locator("#detail")
        shown = '{\n  "order": 9007199254740993,\n  "paid": 1.0,\n  "items": [],\n  "text": "a\\"b, {c}"\n}'
        await expect(detail.get_by_label("Body").locator("pre")).to_have_text(shown)
        await expect(detail.get_by_role("region", name="Trace")).to_contain_text("no client recorded a trace")
        await detail.get_by_label("form of the body").select_option("protobuf")
        await expect(detail.get_by_role("region", name="Body")).to_contain_text(
            "enter the full name of the message type"
        )
        await detail.get_by_label("protobuf message type").fill("shop.Order")
        await page.keyboard.press("Tab")
        await expect(detail.get_by_role("region", name="Body")).to_contain_text("descriptor")
        await expect(detail.get_by_label("receiver").locator("option")).to_contain_text(["every group", GROUP])
        await detail.get_by_label("receiver").select_option(GROUP)
        await confirm(page, "Resend", f"sent to %RETRY%{GROUP}")


async def test_dead_letter_page_leads_to_its_group_and_resends_to_it(staged: Stage) -> None:
    url = staged.replica.app.admin.url
    async with browsing() as page:
        await log_in(page, url, WRITE)
        await open_page(page, url, f"messages/%25DLQ%25{GROUP}%2F{UNIQUE_ID}")
        detail = page.locator("#detail")
        await expect(detail.get_by_role("link", name=f"dead letters of {GROUP}")).to_be_visible()
        await expect(detail.get_by_role("link", name=staged.topic)).to_be_visible()
        await confirm(page, "Resend", f"sent to %RETRY%{GROUP}")


async def test_message_page_shows_the_trace_of_a_grpc_message(tmp_path: Path) -> None:
    async with stage(tmp_path / "store", grpc={"message_trace": True}) as staged:
        sent = await staged.grpc.send_one(b"traced")
        await staged.replica.app.grpc._trace_writer.flush()  # type: ignore[union-attr]  # instead of waiting a second
        async with browsing() as page:
            await open_page(page, staged.replica.app.admin.url, f"messages/{staged.topic}%2F{sent.message_id}")
            trace = page.locator("#detail").get_by_role("table", name="Trace")
            await expect(trace.locator("tbody tr").first).to_contain_text("sent")
            await expect(trace.locator("tbody tr").first).to_contain_text("success")
