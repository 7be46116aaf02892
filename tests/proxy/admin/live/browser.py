"""Chromium on the live page."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, async_playwright, expect

# Milliseconds, for a slow machine; the default of expectations is 5 s.
TIMEOUT = 60_000
expect.set_options(timeout=TIMEOUT)
WIDE, NARROW = 1_280, 400


@asynccontextmanager
async def browsing(width: int = WIDE, **more: Any) -> AsyncIterator[Page]:
    """A page of Chromium; errors on its console fail the test."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "needs Chromium: apt-get install chromium"
    complaints: list[str] = []
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=TIMEOUT)
        page = await browser.new_page(viewport={"width": width, "height": 1000}, **more)
        page.set_default_timeout(TIMEOUT)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
        await browser.close()
    assert complaints == []


async def log_in(page: Page, url: str | None, token: str) -> None:
    """Open the page and log in by its form."""
    assert url is not None
    await page.goto(url)
    await page.locator("#log-in").click()
    await page.locator("#token").fill(token)
    await page.locator("#login button").click()
    await expect(page.locator("#log-out")).to_be_visible()


async def open_page(page: Page, url: str | None, address: str) -> None:
    """Follow a deep link, and wait until its panels are loaded."""
    await page.goto(f"{url}/#/{address}")
    if address:
        await expect(page.locator("#detail section").first).to_be_visible()
        await expect(page.locator("#detail").get_by_text("loading…")).to_have_count(0)
    else:
        await expect(page.locator("#t-brokers tbody tr").first).to_be_visible()


async def check_accessibility(page: Page) -> None:
    """Fail on any serious violation that axe finds."""
    found = await Axe().run(page)
    serious = [item for item in found.response["violations"] if item["impact"] in ("serious", "critical")]
    assert serious == [], found.generate_report()
