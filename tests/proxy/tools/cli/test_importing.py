"""Imports into a server with topics, groups and messages of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.tools.cli.shell import ADMIN, Shell, messages_of

pytestmark = pytest.mark.timeout(600)


def _topic(name: str, queues: int, **more: object) -> dict[str, object]:
    return {"kind": "topic", "topic": name, "read_queues": queues, "write_queues": queues, **more}


def _group(name: str, offsets: dict[tuple[str, str, int], int], **configuration: object) -> dict[str, object]:
    """Return a group's line. offsets: by topic, broker and queue."""
    places = [
        {"topic": topic, "broker": broker, "queue": queue, "offset": offset}
        for (topic, broker, queue), offset in offsets.items()
    ]
    return {"kind": "group", "group": name, "configuration": {"groupName": name, **configuration}, "offsets": places}


def _messages(topic: str, broker: str, offsets: range, queue: int = 0) -> list[dict[str, object]]:
    place = {"kind": "message", "topic": topic, "broker": broker, "queue": queue, "born": 1}
    return [
        {**place, "offset": offset, "stored": 1000 + offset, "body": f"{broker} {queue} {offset}"} for offset in offsets
    ]


def _file(path: Path, *lines: dict[str, object]) -> Path:
    kinds = [line["kind"] for line in lines]
    end = {"kind": "end", **{f"{kind}s": kinds.count(kind) for kind in ("topic", "group", "message")}}
    texts = map(json.dumps, ({"kind": "gantry-export", "version": 1}, *lines, end))
    path.write_text("\n".join(texts) + "\n")
    return path


def _warnings(shell: Shell, *words: object) -> list[str]:
    """Run an import; return its warnings."""
    done = shell.run("import", *words)
    assert done.status == 0, done
    return [line.removeprefix("gantry: warning: ") for line in done.err.splitlines()]


def _offsets(shell: Shell, group: str, topic: str) -> dict[int, int]:
    queues: list[dict[str, Any]] = shell.ok("groups", "show", group, "--json").object["queues"]
    return {item["queue"]: item["offset"] for item in queues if item["topic"] == topic}


def test_offset_of_a_group_is_right_between_messages_of_other_producers(shell: Shell, tmp_path: Path) -> None:
    topic, file = shell.topic("import-live", queues=1), tmp_path / "file.jsonl"
    shell.ok("import", _file(file, _topic(topic, 1), *_messages(topic, "broker-a", range(5))))
    shell.ok("send", topic, "live", "--count", 20)
    groups = [_group(f"live-{offset}", {(topic, "broker-a", 0): offset}) for offset in (2, 5, 7, 10)]
    shell.ok("import", _file(file, _topic(topic, 1), *groups, *_messages(topic, "broker-a", range(10))))
    found = {offset: _offsets(shell, f"live-{offset}", topic)[0] for offset in (2, 5, 7, 10)}
    assert found == {2: 2, 5: 25, 7: 27, 10: 30}
    assert [message["body"] for message in messages_of(shell, topic)][25] == "broker-a 0 5"


def test_offset_of_a_group_is_right_in_a_file_with_gaps(shell: Shell, tmp_path: Path) -> None:
    topic, broker = "import-gaps", "broker-a"
    messages = [*_messages(topic, broker, range(100, 103)), *_messages(topic, broker, range(500, 503))]
    groups = [_group(f"gap-{offset}", {(topic, broker, 0): offset}) for offset in (102, 300, 501)]
    shell.ok("import", _file(tmp_path / "file.jsonl", _topic(topic, 1), *groups, *messages))
    assert [_offsets(shell, f"gap-{offset}", topic)[0] for offset in (102, 300, 501)] == [2, 3, 4]


def test_two_source_queues_in_one_queue_give_the_lower_offset(shell: Shell, tmp_path: Path) -> None:
    topic = "import-two"
    pairs = zip(_messages(topic, "one", range(5)), _messages(topic, "two", range(5)), strict=True)
    messages = [message for pair in pairs for message in pair]
    group = _group("two", {(topic, "one", 0): 4, (topic, "two", 0): 2})
    assert _warnings(shell, _file(tmp_path / "file.jsonl", _topic(topic, 1), group, *messages)) == []
    # The third message of the second queue.
    assert _offsets(shell, "two", topic) == {0: 5}


def test_offsets_that_are_not_set_are_printed(shell: Shell, tmp_path: Path) -> None:
    topic, file = "import-unset", tmp_path / "file.jsonl"
    messages = _messages(topic, "broker-a", range(3))
    elsewhere = {("import-none", "broker-a", queue): 7 for queue in (1, 0)}
    places = {(topic, "broker-a", 0): 1, (topic, "broker-a", 1): 9, **elsewhere}
    lines = _topic(topic, 2), _group("unset", places), *messages
    absent = [
        f"the offset of consumer group unset in topic {topic} was not set at broker-a/1: "
        "the file has no messages from there",
        "the offset of consumer group unset in topic import-none was not set at broker-a/0, broker-a/1: "
        "the file has no messages from there",
    ]
    assert _warnings(shell, _file(file, *lines)) == absent
    assert _offsets(shell, "unset", topic)[0] == 1
    # A repeated import finds its own offset.
    assert _warnings(shell, file) == absent
    shell.ok("groups", "reset", "unset", "--topic", topic, "--to", "latest", "--yes")
    present = (
        f"the offset of consumer group unset in topic {topic} was not set at broker-a/0: it is 3 already, by the file 1"
    )
    assert _warnings(shell, file) == [*absent, present]
    assert _offsets(shell, "unset", topic)[0] == 3


def test_messages_with_the_address_of_their_producer_are_imported_by_signed_requests(
    authenticating: Shell, tmp_path: Path
) -> None:
    topic = "import-born-host"
    messages = [
        {**message, "properties": {"__BORNHOST": "10.9.8.7"}} for message in _messages(topic, "broker-a", range(2))
    ]
    file = _file(tmp_path / "file.jsonl", _topic(topic, 1), *messages)
    done = authenticating.run("import", file, "--json", env=ADMIN)
    assert (done.status, done.object["messages"]) == (0, 2), done


def test_existing_topics_and_groups_stay_unchanged(shell: Shell, tmp_path: Path) -> None:
    topic = shell.topic("import-existing", queues=8)
    shell.ok("groups", "create", "existing", "--retries", 5)
    group = _group("existing", {}, retryMaxTimes=3, consumeEnable=False, attributes={"a": "b"})
    file = _file(tmp_path / "file.jsonl", _topic(topic, 2, type="FIFO", permission=4), group)
    assert _warnings(shell, file) == [
        f"topic {topic} at broker-a has 8 read queues, the file 2; queues are never removed",
        f"topic {topic} at broker-a has 8 write queues, the file 2; queues are never removed",
        f"topic {topic} at broker-a has type NORMAL, the file FIFO; --overwrite would change it",
        f"topic {topic} at broker-a has permission 6, the file 4; --overwrite would change it",
        "consumer group existing at broker-a has retryMaxTimes 5, the file 3; --overwrite would change it",
        "consumer group existing at broker-a has consumeEnable true, the file false; --overwrite would change it",
        'consumer group existing at broker-a has attribute a null, the file "b"; --overwrite would change it',
    ]
    found = shell.ok("topics", "show", topic, "--json").object
    assert (found["type"], len(found["queues"])) == ("NORMAL", 8)
    shown = shell.ok("groups", "show", "existing", "--json").object
    assert (shown["retries"], shown["enabled"]) == (5, True)
    assert "imported 0 topics, 0 groups, " in shell.run("import", file).out


def test_overwrite_changes_existing_topics_and_groups_without_removing_queues(shell: Shell, tmp_path: Path) -> None:
    fewer, more = shell.topic("import-fewer", queues=8), shell.topic("import-more", queues=2)
    shell.ok("groups", "create", "overwritten", "--fifo", "--retries", 5)
    group = _group("overwritten", {}, retryMaxTimes=3)
    file = _file(tmp_path / "file.jsonl", _topic(fewer, 2, type="FIFO"), _topic(more, 4), group)
    warnings = _warnings(shell, file, "--overwrite")
    assert f"topic {fewer} at broker-a has 8 write queues, the file 2; queues are never removed" in warnings
    assert f"topic {more} at broker-a has 2 write queues, the file 4; it is changed" in warnings
    found = shell.ok("topics", "show", fewer, "--json").object
    assert (found["type"], len(found["queues"])) == ("FIFO", 8)
    assert len(shell.ok("topics", "show", more, "--json").object["queues"]) == 4
    shown = shell.ok("groups", "show", "overwritten", "--json").object
    # A property that the file does not have stays.
    assert (shown["retries"], shown["fifo"]) == (3, True)
    # The remaining difference is never changed.
    done = shell.run("import", file, "--overwrite")
    assert len(done.err.splitlines()) == 2
    assert "imported 0 topics, 0 groups, " in done.out
