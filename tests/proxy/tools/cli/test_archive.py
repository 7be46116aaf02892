import gzip
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zstandard

from proxy.tools.cli.archive import writing
from tests.cluster.servers import Gantry
from tests.proxy.tools.cli.shell import LIMIT, Shell, embedded, messages_of

# The first test's time includes the server's start and the export.
pytestmark = pytest.mark.timeout(600)

_ORIGIN = "GANTRY_ORIGIN"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Shell]:
    """Run a server on its own, empty directory."""
    with Gantry(tmp_path, "", embedded(tmp_path / "data")) as gantry:
        yield Shell(gantry.address)


@pytest.fixture(scope="module")
def exported(gantry: Gantry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create and export two topics with 2,000 lines and some odd messages, and a group with half of them consumed."""
    shell, file = Shell(gantry.address), tmp_path_factory.mktemp("export") / "export.jsonl"
    topic, fifo = shell.topic("archive"), shell.topic("archive-fifo", "FIFO", queues=2)
    shell.ok("send", topic, "--lines", stdin="\n".join(f"line {number}" for number in range(2000)).encode())
    shell.ok("send", topic, "-", "--tag", "t", "--key", "k", "--property", "x=é \u2603", stdin=b"\x00\xff\xfe")
    shell.ok("send", topic, " ", "--tag", "blank")
    for group in ("alice", "bob", "carol"):
        shell.ok("send", fifo, "--lines", "--group", group, stdin="\n".join(f"{group} {n}" for n in range(20)).encode())
    delayed = shell.topic("archive-delay", "DELAY")
    shell.ok("send", delayed, "it was late", "--delay", "1s")
    deadline = time.monotonic() + LIMIT
    while not messages_of(shell, delayed):
        assert time.monotonic() < deadline
    assert len(shell.ok("receive", topic, "--group", "halfway", "--max", 1000, "--json").objects) == 1000
    words = ("--topics", topic, fifo, delayed, "--groups", "halfway")
    assert shell.ok("export", *words, "-o", file, "--json").object == {
        "file": str(file),
        "topics": 3,
        "groups": 1,
        "messages": 2063,
    }
    return file


def _alike(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the fields that an import changes."""
    properties = {
        name: value for name, value in message["properties"].items() if name != _ORIGIN and "TIMER" not in name
    }
    for own in ("REAL_TOPIC", "REAL_QID", "__BORNHOST"):
        properties.pop(own, None)
    return {**message, "properties": properties, "stored": None, "born_host": None}


def test_import_restores_an_export(shell: Shell, other: Shell, exported: Path) -> None:
    assert other.ok("import", exported, "--json").object == {
        "file": str(exported),
        "topics": 3,
        "groups": 1,
        "messages": 2063,
        "skipped": 0,
    }
    for topic in ("archive", "archive-fifo", "archive-delay"):
        ours, theirs = messages_of(shell, topic), messages_of(other, topic)
        assert [_alike(message) for message in theirs] == [_alike(message) for message in ours]
        assert all(_ORIGIN in message["properties"] for message in theirs)
    [fifo] = [item for item in other.ok("topics", "--json").objects if item["topic"] == "archive-fifo"]
    assert (fifo["type"], fifo["queues"]) == ("FIFO", 2)
    assert (
        other.ok("groups", "show", "halfway", "--json").object == shell.ok("groups", "show", "halfway", "--json").object
    )
    # A second import sends nothing; the imported topic can be exported, and so on.
    again = other.ok("import", exported).out
    assert "0 messages from" in again
    assert "2,063 messages were there already" in again
    assert len(messages_of(other, "archive")) == 2002


def test_interrupted_import_continues(shell: Shell, other: Shell, exported: Path) -> None:
    with other.following("import", exported) as importing:
        deadline = time.monotonic() + LIMIT
        while (
            other.run("topics", "show", "archive", "--json").out.find('"messages":0,') >= 0
            or not other.run("topics", "show", "archive", "--json").out
        ):
            assert time.monotonic() < deadline
        importing.kill()
    other.ok("import", exported)
    ours, theirs = messages_of(shell, "archive"), messages_of(other, "archive")
    assert [_alike(message) for message in theirs] == [_alike(message) for message in ours]


def test_export_compressed_by_suffix(shell: Shell, other: Shell, exported: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.jsonl.zst"
    shell.ok("export", "--topics", "archive-fifo", "--groups", "-o", file)
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(file.read_bytes())
    kinds = [json.loads(line)["kind"] for line in plain.splitlines()]
    assert kinds == ["gantry-export", "topic", *["message"] * 60, "end"]
    other.ok("import", file)
    assert len(messages_of(other, "archive-fifo")) == 60
    cut = tmp_path / "cut.jsonl.zst"
    cut.write_bytes(file.read_bytes()[:-100])
    assert str(cut) in other.refused("import", cut)


def test_export_to_gzip_and_to_stdout(shell: Shell, other: Shell, exported: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.jsonl.gz"
    shell.ok("export", "--topics", "archive-fifo", "--groups", "-o", file)
    plain = gzip.decompress(file.read_bytes()).splitlines()
    printed = shell.ok("export", "--topics", "archive-fifo", "--groups", "-o", "-").out.splitlines()
    assert [line.encode() for line in printed[1:]] == plain[1:]
    other.ok("import", file)
    assert len(messages_of(other, "archive-fifo")) == 60
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(file.read_bytes()[:-100])
    assert str(cut) in other.refused("import", cut)


def test_export_of_topics_includes_only_their_groups(shell: Shell, exported: Path) -> None:
    def groups(topic: str) -> list[str]:
        lines = shell.ok("export", "--topics", topic, "--no-messages", "-o", "-").objects
        return [line["group"] for line in lines if line["kind"] == "group"]

    assert groups("archive") == ["halfway"]
    assert groups("archive-fifo") == []


def test_import_into_the_source_is_refused(shell: Shell, exported: Path, tmp_path: Path) -> None:
    topic, file = shell.topic("archive-same"), tmp_path / "same.jsonl"
    shell.ok("send", topic, "x", "--count", 10)
    shell.ok("export", "--topics", topic, "-o", file)
    assert "--into-source imports them all the same" in shell.refused("import", file)
    assert len(messages_of(shell, topic)) == 10
    shell.ok("import", file, "--into-source")
    assert len(messages_of(shell, topic)) == 20


def test_export_without_messages(shell: Shell, exported: Path, tmp_path: Path) -> None:
    file = tmp_path / "names.jsonl"
    shell.ok("export", "--topics", "archive", "--groups", "halfway", "--no-messages", "-o", file)
    head, topic, group, end = map(json.loads, file.read_bytes().splitlines())
    assert (head["kind"], head["version"]) == ("gantry-export", 1)
    assert topic == {
        "kind": "topic",
        "topic": "archive",
        "type": "NORMAL",
        "read_queues": 4,
        "write_queues": 4,
        "permission": 6,
    }
    assert (group["group"], len(group["offsets"])) == ("halfway", 4)
    assert end == {"kind": "end", "topics": 1, "groups": 1, "messages": 0}


@pytest.mark.parametrize(
    ("number", "line", "sentence"),
    [
        (1, b'{"kind":"topic","topic":"t","read_queues":1,"write_queues":1}', "the first line, and no other, has"),
        (1, b'{"kind":"gantry-export","version":2}', "version 2 of the format; this program reads version 1"),
        (5, b"{", "not JSON: "),
        (5, b"[]", "Input should be"),
        (5, b'{"kind":"massage"}', "Input tag 'massage'"),
        (5, b'{"kind":"message","topic":"t","broker":"b","queue":0,"offset":-1,"born":0,"body":""}', "offset: Input"),
        (5, b'{"kind":"message","topic":"t","broker":"b","queue":0,"offset":0,"born":0}', "Value error, a message has"),
        (5, b'{"kind":"group","group":"g","configuration":{"attributes":[1]}}', "configuration: Value error"),
        (5, b'{"kind":"end","topics":0,"groups":0,"messages":0}', None),
    ],
)
def test_import_with_an_invalid_line_changes_nothing(
    shell: Shell, exported: Path, tmp_path: Path, number: int, line: bytes, sentence: str | None
) -> None:
    lines = exported.read_bytes().replace(b'"archive', b'"archive-bad').splitlines()
    lines[number - 1] = line
    file = tmp_path / "bad.jsonl"
    file.write_bytes(b"\n".join(lines))
    told = shell.refused("import", file)
    expected = (
        f"{file}, line 6: there is more behind the end" if sentence is None else f"{file}, line {number}: {sentence}"
    )
    assert told.startswith(expected)
    assert "archive-bad" not in shell.ok("topics").out


def test_import_of_a_truncated_file_is_refused(shell: Shell, exported: Path, tmp_path: Path) -> None:
    file = tmp_path / "cut.jsonl"
    lines = exported.read_bytes().splitlines()
    file.write_bytes(b"\n".join(lines[:9]))
    assert shell.refused("import", file) == f"{file}, after line 9: the file has no end; it was cut off"


def test_failed_export_leaves_no_file(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "none.jsonl"
    assert shell.refused("export", "--topics", "nowhere", "-o", file) == "there is no topic nowhere to export"
    sentence = "there is no consumer group nobody to export"
    assert shell.refused("export", "--groups", "nobody", "-o", file) == sentence
    assert list(tmp_path.iterdir()) == []
    absent = tmp_path / "no" / "folder.jsonl"
    assert shell.refused("export", "-o", absent) == f"{absent}: No such file or directory"
    assert "No such file" in shell.refused("import", file)


def test_pipes_and_links_stay_under_their_names(tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "folder" / "export.jsonl"
    os.mkfifo(pipe)
    target.parent.mkdir()
    link.symlink_to(target)
    with ThreadPoolExecutor() as pool:
        arrived = pool.submit(pipe.read_bytes)
        with writing(pipe) as writer:
            writer.write({"kind": "topic"})
        assert arrived.result() == b'{"kind":"topic"}\n'
    with writing(link) as writer:
        writer.write({"kind": "topic"})
    assert (pipe.is_fifo(), link.is_symlink(), target.read_bytes()) == (True, True, b'{"kind":"topic"}\n')
    assert list(target.parent.iterdir()) == [target]


def test_export_ctrl_c_leaves_no_file(shell: Shell, exported: Path, tmp_path: Path) -> None:
    with shell.following("export", "-o", tmp_path / "export.jsonl", "--timeout", "60s") as exporting:
        deadline = time.monotonic() + LIMIT
        while not list(tmp_path.iterdir()):
            assert time.monotonic() < deadline
        done = exporting.interrupt()
    # The command may have finished already.
    assert (done.status, [file.name for file in tmp_path.iterdir()]) in ((130, []), (0, ["export.jsonl"]))
