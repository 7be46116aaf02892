"""The rendered documentation at /docs."""

import re
import shlex
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from playwright.async_api import expect

from tests.proxy.admin.http.replicas import WRITE, Stage, stage
from tests.proxy.admin.live.browser import NARROW, browsing, check_accessibility

pytestmark = pytest.mark.anyio


class _Links(HTMLParser):
    """Collects ids, targets of links and loaded files."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.files: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values["id"]} if "id" in values else set()
        if "href" in values:
            (self.files if tag == "link" else self.targets).add(values["href"])
        if "src" in values:
            self.files.add(values["src"])


async def _page(served: Stage) -> str:
    answer = await served.replica.read.get("/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    return answer.text


async def test_every_operation_and_schema_is_described(served: Stage) -> None:
    page, document = await _page(served), await served.replica.get("/openapi.json")
    links = _Links(page)
    for path, operations in document["paths"].items():
        assert path in page
        for operation in operations.values():
            assert operation["operationId"] in links.ids
    assert {f"schema-{name}" for name in document["components"]["schemas"]} <= links.ids


async def test_links_lead_somewhere_and_no_file_is_of_another_origin(served: Stage) -> None:
    links = _Links(await _page(served))
    assert {target[1:] for target in links.targets if target.startswith("#")} <= links.ids
    for target in sorted(links.files | {target for target in links.targets if not target.startswith("#")}):
        assert target.startswith("/")
        assert (await served.replica.read.get(target)).status_code == 200, target


def _examples(page: str) -> list[list[str]]:
    return [shlex.split(unescape(text)) for text in re.findall(r"<pre>(curl [^<]*)</pre>", page)]


async def test_examples_of_reads_are_valid_requests(served: Stage) -> None:
    """Each example is sent: it may find nothing, but is never invalid."""
    url = str(served.replica.app.admin.url)
    examples = [words for words in _examples(await _page(served)) if "-X" not in words]
    reads = [words[-1] for words in examples if not words[-1].endswith("/v1/tap")]
    assert len(reads) > 25
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {WRITE}"}, timeout=30) as http:
        for address in reads:
            assert address.startswith(url)
            answer = await http.get(address)
            assert answer.status_code in (200, 404, 409, 503), (address, answer.text)


async def test_examples_of_writes_have_valid_bodies(served: Stage) -> None:
    examples = _examples(await _page(served))
    for path in ("/v1/topics", "/v1/consumer-groups", "/v1/users"):
        [words] = [words for words in examples if words[-1].endswith(path) and "POST" in words]
        body = words[words.index("-d") + 1]
        answer = await served.replica.write.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code != 422, answer.text


@pytest.mark.external
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_page_works_in_a_browser_without_scripts(tmp_path: Path, theme: str) -> None:
    async with stage(tmp_path) as staged, browsing(NARROW, color_scheme=theme) as page:
        await page.goto(f"{staged.replica.app.admin.url}/docs")
        await expect(page.get_by_role("heading", name="Gantry admin API")).to_be_visible()
        await page.get_by_text("Move a group: to a time").click()
        link = page.locator("#reset_offset").get_by_role("link", name="ResetToTime")
        await link.click()
        await expect(page.locator("#schema-ResetToTime")).to_be_visible()
        await check_accessibility(page)
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
