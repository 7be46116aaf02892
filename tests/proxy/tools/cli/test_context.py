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


def test_an_existing_context_is_only_replaced_with_force(file: Path) -> None:
    add = ("add", "prod", "--endpoint")
    assert context(file, *add, "mq:8080", "--tls").status == 0
    again = context(file, *add, "mq:9090")
    sentence = "gantry: there is a context prod already; --force replaces all its values\n"
    assert (again.status, again.err, "mq:8080" in file.read_text()) == (1, sentence, True)
    assert context(file, *add, "mq:9090", "--force").status == 0
    assert context(file, "show", "prod", "--json").object == {"context": "prod", "endpoint": "mq:9090"}
