"""The file of contexts."""

from pathlib import Path

import pytest

from tests.proxy.tools.cli.shell import Done, Shell


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "profiles.toml"


def context(file: Path, *words: str) -> Done:
    return Shell("127.0.0.1:1").run("context", *words, env={"GANTRY_PROFILES": str(file)})


def test_a_link_to_the_file_stays(file: Path) -> None:
    link = file.with_name("link.toml")
    link.symlink_to(file)
    assert context(link, "add", "prod", "--endpoint", "mq:8080").status == 0
    assert (link.is_symlink(), "mq:8080" in file.read_text()) == (True, True)
