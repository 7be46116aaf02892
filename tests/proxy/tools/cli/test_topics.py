import re

from tests.proxy.tools.cli.shell import Shell


def _row(text: str, name: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return line.split()


def test_topic_is_created_listed_shown_and_deleted(shell: Shell) -> None:
    assert shell.ok("topics", "create", "made", "--type", "fifo", "--queues", 3).out == "topic made created\n"
    shell.ok("send", "made", "x", "--count", 1200)
    assert _row(shell.ok("topics").out, "made")[:4] == ["made", "FIFO", "3", "1,200"]
    [listed] = [item for item in shell.ok("topics", "--json").objects if item["topic"] == "made"]
    assert (listed["type"], listed["queues"], listed["messages"]) == ("FIFO", 3, 1200)
    assert listed["updated"] > 0
    detail = shell.ok("topics", "made").out
    assert detail.startswith("made  FIFO, 1,200 messages in 3 queues\n")
    assert re.search(r"^broker-a +0 +0 +400 +400 +\d\d:", detail, re.MULTILINE)
    shown = shell.ok("topics", "made", "--json").object
    assert [(item["queue"], item["first"], item["end"], item["messages"]) for item in shown["queues"]] == [
        (number, 0, 400, 400) for number in range(3)
    ]
    assert shell.ok("topics", "delete", "made", "--json").object == {"topic": "made", "done": "deleted"}
    assert shell.refused("topics", "made").startswith("there is no topic made; ")
    assert "made" not in [item["topic"] for item in shell.ok("topics", "--json").objects]


def test_system_topics_are_listed_on_request(shell: Shell) -> None:
    names = {item["topic"] for item in shell.ok("topics", "--json").objects}
    every = {item["topic"] for item in shell.ok("topics", "--all", "--json").objects}
    assert "SELF_TEST_TOPIC" in every - names
    assert {"broker-a", "DefaultCluster"} <= every - names


def test_what_is_refused(shell: Shell) -> None:
    assert "characters" in shell.refused("topics", "create", "not a topic")
    assert shell.refused("topics", "delete", "nowhere").startswith("there is no topic nowhere; ")
    assert shell.refused("topics", "create", status=2) == "which topic? gantry topics create NAME"
    assert shell.refused("topics", "make", "x", "y", status=2) == "not a command: gantry topics make x y"
