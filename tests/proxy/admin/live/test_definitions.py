"""Creation and deletion of topics and consumer groups, and links to filtered messages, in a browser."""

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.proxy.admin.http.replicas import GROUP, READ, WRITE, stage
from tests.proxy.admin.live.browser import browsing, log_in, open_page

pytestmark = [pytest.mark.anyio, pytest.mark.external]


async def answer(page: Page, button: str, choice: str) -> None:
    """Click a button of the page, and one of the question that follows."""
    await page.locator("#detail").get_by_role("button", name=button, exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name=choice).click()


async def test_writers_create_and_delete_topics_and_groups(tmp_path: Path) -> None:
    async with stage(tmp_path / "store") as staged, browsing() as page:
        url, report, title = staged.replica.app.admin.url, page.locator("#report"), page.locator("#detail .title")
        await log_in(page, url, WRITE)

        await open_page(page, url, "topics")
        await page.get_by_role("textbox", name="name").fill("invoices")
        await page.get_by_label("type of messages").select_option("FIFO")
        await page.get_by_label("queues at each broker").fill("3")
        await answer(page, "Create", "Cancel")
        assert "invoices" not in [item["name"] for item in (await staged.replica.get("/v1/topics"))["items"]]
        await answer(page, "Create", "Create")
        await expect(report).to_have_text("invoices created")
        await expect(title).to_contain_text("invoices")
        topic = await staged.replica.get("/v1/topics/invoices")
        assert (topic["kind"], topic["brokers"][0]["write_queues"]) == ("FIFO", 3)

        # A second topic of the name is refused, and the page stays.
        await open_page(page, url, "topics")
        await page.get_by_role("textbox", name="name").fill("invoices")
        await answer(page, "Create", "Create")
        await expect(report).to_contain_text("the topic invoices exists")
        await open_page(page, url, "topics/invoices")
        await answer(page, "Delete", "Delete")
        await expect(report).to_have_text("topic invoices deleted")
        assert "invoices" not in [item["name"] for item in (await staged.replica.get("/v1/topics"))["items"]]

        await open_page(page, url, "groups")
        await page.get_by_role("textbox", name="name").fill("accounting")
        await page.get_by_label("in order").check()
        await answer(page, "Create", "Create")
        await expect(title).to_contain_text("accounting")
        await answer(page, "Delete", "Delete")
        await expect(report).to_have_text("consumer group accounting deleted")
        methods = [(entry["method"], entry["path"]) for entry in (await staged.replica.get("/v1/audit"))["items"]]
        assert methods[:2] == [("DELETE", "/v1/consumer-groups/accounting"), ("POST", "/v1/consumer-groups")]


async def test_readers_can_create_and_delete_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path / "store") as staged, browsing() as page:
        url = staged.replica.app.admin.url
        await log_in(page, url, READ)
        for address in ("topics", "groups", f"topics/{staged.topic}"):
            await open_page(page, url, address)
            await expect(page.locator("#detail").get_by_role("button", name="Create", exact=True)).to_have_count(0)
            await expect(page.locator("#detail").get_by_role("button", name="Delete", exact=True)).to_have_count(0)


async def test_filters_of_messages_are_in_the_address(tmp_path: Path) -> None:
    async with stage(tmp_path / "store") as staged, browsing(timezone_id="Asia/Tokyo") as page:
        for tag in ("paid", "open"):
            await staged.remoting.send(staged.topic, tag.encode(), {"UNIQ_KEY": f"id-{tag}", "TAGS": tag})
        url = staged.replica.app.admin.url
        await open_page(page, url, f"topics/{staged.topic}")
        rows = page.get_by_role("table", name=f"Messages of {staged.topic}").locator("tbody tr")
        await page.get_by_label("tag").fill("paid")
        await page.get_by_label("from").fill("2026-01-02T09:00:05")
        await page.locator("#detail").get_by_role("button", name="Show").click()
        await expect(rows).to_have_count(1)
        assert page.url == f"{url}/#/topics/{staged.topic}?tag=paid&from=2026-01-02T00%3A00%3A05.000Z"
        # Another reader opens the link.
        await page.reload()
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("id-paid")
        await expect(page.get_by_label("tag")).to_have_value("paid")
        await expect(page.get_by_label("from")).to_have_value("2026-01-02T09:00:05")


async def test_unknown_topics_and_groups_cannot_be_deleted(tmp_path: Path) -> None:
    async with stage(tmp_path / "store") as staged, browsing() as page:
        url = staged.replica.app.admin.url
        await log_in(page, url, WRITE)
        remove = page.locator("#detail").get_by_role("button", name="Delete", exact=True)
        for kind, path, words in (
            ("groups", "consumer-groups", "there is no consumer group later"),
            ("topics", "topics", "later"),
        ):
            await open_page(page, url, f"{kind}/later")
            await expect(page.locator("#detail section").first).to_contain_text(words)
            await expect(remove).to_have_count(0)
            created = await staged.replica.write.post(f"/v1/{path}", json={"name": "later"})
            assert created.status_code == 200
            await page.reload()
            await expect(remove).to_be_visible()


async def test_only_actions_that_take_something_away_are_red(tmp_path: Path) -> None:
    async with stage(tmp_path / "store") as staged, browsing() as page:
        url, dialog = staged.replica.app.admin.url, page.get_by_role("dialog")
        await log_in(page, url, WRITE)
        await open_page(page, url, f"replicas/{(await staged.replica.get('/v1/live'))['replica']}")
        for name, classes in (("Drain", "danger"), ("Resume", "")):
            button = page.locator("#detail").get_by_role("button", name=name, exact=True)
            await expect(button).to_have_class(classes)
            await button.click()
            await expect(dialog.get_by_role("button", name=name)).to_have_class(classes)
            await dialog.get_by_role("button", name="Cancel").click()


async def test_a_group_that_may_not_consume_shows_it_as_the_reason(tmp_path: Path) -> None:
    async with stage(tmp_path / "store") as staged, browsing() as page:
        path = f"/v1/consumer-groups/{GROUP}"
        await staged.replica.post(f"{path}/reset-offset", {"topic": staged.topic, "to": "earliest"})
        for changed, body in ((path, {"enabled": False}), (f"/v1/topics/{staged.topic}", {"permission": "W"})):
            assert (await staged.replica.write.patch(changed, json=body)).status_code == 200
        url = staged.replica.app.admin.url
        await open_page(page, url, f"groups/{GROUP}")
        findings = page.locator("#detail .findings li")
        await expect(findings.nth(0)).to_contain_text("It is disabled: brokers give it no messages while")
        await expect(findings.nth(1)).to_contain_text(f"Topic {staged.topic} is not readable at broker-a")
        await expect(page.get_by_role("region", name="Definition")).to_contain_text("may consumeno")


async def test_writers_change_definitions(tmp_path: Path) -> None:
    async with stage(tmp_path / "store") as staged, browsing() as page:
        url, report, panel = (
            staged.replica.app.admin.url,
            page.locator("#report"),
            page.get_by_role("region", name="Definition"),
        )
        dialog = page.get_by_role("dialog")
        await log_in(page, url, WRITE)
        await open_page(page, url, f"groups/{GROUP}")
        await panel.get_by_role("button", name="Change").click()
        await expect(report).to_have_text("nothing is changed")
        await panel.get_by_label("may consume").uncheck()
        await panel.get_by_label("redeliveries").fill("5")
        await answer(page, "Change", "Cancel")
        path = f"/v1/consumer-groups/{GROUP}/definition"
        assert (await staged.replica.get(path))["enabled"] is True
        await panel.get_by_role("button", name="Change").click()
        await expect(dialog).to_contain_text("may consume: yes → no")
        await dialog.get_by_role("button", name="Change").click()
        await expect(report).to_have_text(f"consumer group {GROUP} changed")
        definition = await staged.replica.get(path)
        assert (definition["enabled"], definition["retries"], definition["fifo"]) == (False, 5, False)

        await open_page(page, url, f"topics/{staged.topic}")
        await panel.get_by_label("type of messages").select_option("FIFO")
        await answer(page, "Change", "Change")
        await expect(dialog).to_contain_text(f"the topic {staged.topic} is of type NORMAL")
        await dialog.get_by_role("button", name="Change").click()
        await expect(report).to_have_text(f"topic {staged.topic} changed")
        await expect(panel.get_by_label("type of messages")).to_have_value("FIFO")
        same = await staged.replica.write.patch(f"/v1/topics/{staged.topic}", json={})
        assert same.json()["kind"] == "FIFO"
