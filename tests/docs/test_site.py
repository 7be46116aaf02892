"""The documentation builds strictly, and its links lead somewhere."""

from pathlib import Path

from docs.build import build, check_site


def test_site_builds_and_all_its_links_lead_somewhere(tmp_path: Path) -> None:
    assert build(tmp_path) == 0
    result = check_site(tmp_path)
    assert result.complaints == []
    assert result.pages > 30
    assert result.links > 1000


def test_check_reports_missing_files_and_anchors_and_assets_of_other_hosts(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<h1 id="top">Title</h1><a href="#top">1</a><a href="#bottom">2</a><a href="gone.html">3</a>'
        '<a href="sub/page.html#here">4</a><img src="gone.png"><a href="https://example.com/">5</a>'
        '<script src="https://example.com/code.js"></script><img src="data:,">'
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "page.html").write_text('<p id="here"></p><a href="../index.html#top">6</a>')
    result = check_site(tmp_path)
    assert result.complaints == [
        "index.html: #bottom: no such anchor",
        "index.html: gone.html: no such file",
        "index.html: gone.png: no such file",
        "index.html: https://example.com/code.js: an asset of another host",
    ]
    assert (result.pages, result.links, result.external) == (2, 6, 2)
