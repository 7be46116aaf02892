"""Screenshots of every page of the live page, for the documentation: `make screenshots`."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from PIL import Image
from playwright.async_api import Page

from tests.proxy.admin.http.replicas import GROUP, PUSH_GROUP, WRITE, Stage, stage
from tests.proxy.admin.live.addresses import addresses
from tests.proxy.admin.live.browser import NARROW, WIDE, browsing, log_in, open_page

FOLDER = Path("docs/images/live")
_WIDTHS = {"wide": WIDE, "narrow": NARROW}
_THEMES = ("light", "dark")
# Colours of an image, and the height in pixels at which long pages are cut.
_COLOURS = 128
_MAX_HEIGHT = 1_800
# Seconds of traffic before the first image.
_TRAFFIC = 30


@asynccontextmanager
async def busy_stage(directory: Path) -> AsyncIterator[Stage]:
    """A stage whose remoting client sends all the time, so that one group falls behind."""
    async with stage(directory, replica="gantry-0") as staged:
        for group in (GROUP, PUSH_GROUP):
            path = f"/v1/consumer-groups/{group}/reset-offset"
            await staged.replica.post(path, {"topic": staged.topic, "to": "earliest"})
        sending = asyncio.ensure_future(_send(staged))
        try:
            await asyncio.sleep(_TRAFFIC)
            yield staged
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _send(staged: Stage) -> None:
    for number in range(1_000_000):
        topic = staged.topic if number % 3 else "invoices"
        await staged.remoting.send(topic, b'{"order": %d}' % number, {"KEYS": f"order-{number}", "TAGS": "new"})
        await asyncio.sleep(0.02)


async def main() -> None:
    """Write all images."""
    with tempfile.TemporaryDirectory() as directory:
        async with busy_stage(Path(directory)) as staged:
            pages = await addresses(staged)
            for size, width in _WIDTHS.items():
                for theme in _THEMES:
                    async with browsing(width, color_scheme=theme) as page:
                        await log_in(page, staged.replica.app.admin.url, WRITE)
                        for name, address in pages.items():
                            await open_page(page, staged.replica.app.admin.url, address)
                            # Charts need two looks.
                            await page.wait_for_timeout(1_500)
                            await _save(page, FOLDER / f"{name}-{theme}-{size}.png")


async def _save(page: Page, file: Path) -> None:
    """Write a small image of the page; long pages are cut."""
    height = min(await page.evaluate("document.documentElement.scrollHeight"), _MAX_HEIGHT)
    width = await page.evaluate("document.documentElement.clientWidth")
    clip = {"x": 0, "y": 0, "width": width, "height": height}
    await page.screenshot(path=file, full_page=True, clip=clip)  # type: ignore[arg-type]
    with Image.open(file) as image:
        image.convert("RGB").quantize(_COLOURS).save(file, optimize=True)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    asyncio.run(main())
