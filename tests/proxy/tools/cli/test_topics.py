import re

import anyio
import pytest

from protocol_negotiation.peer import HostPort
from proxy.tools.remoting_client import connect
from remoting.codes import RequestCode, ResponseCode
from remoting.messages import READ_AND_WRITE
from remoting.topic_group_config import topic_fields
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
    detail = shell.ok("topics", "show", "made").out
    assert detail.startswith("made  FIFO, 1,200 messages in 3 queues\n")
    assert re.search(r"^broker-a +0 +0 +400 +400 +\d\d:", detail, re.MULTILINE)
    shown = shell.ok("topics", "show", "made", "--json").object
    assert [(item["queue"], item["first"], item["end"], item["messages"]) for item in shown["queues"]] == [
        (number, 0, 400, 400) for number in range(3)
    ]
    assert shell.ok("topics", "delete", "made", "--yes", "--json").object == {"topic": "made", "done": "deleted"}
    assert shell.refused("topics", "show", "made").startswith("there is no topic made; ")
    assert "made" not in [item["topic"] for item in shell.ok("topics", "--json").objects]


def test_system_topics_are_listed_on_request(shell: Shell) -> None:
    names = {item["topic"] for item in shell.ok("topics", "--json").objects}
    # A broker of RocketMQ 5.4 creates it, the embedded broker does not.
    create_at_broker(shell, "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
    every = {item["topic"] for item in shell.ok("topics", "--all", "--json").objects}
    assert "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC" in every
    listed = {item["topic"] for item in shell.ok("topics", "--json").objects}
    assert "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC" not in listed
    assert "SELF_TEST_TOPIC" in every - names
    assert {"broker-a", "DefaultCluster"} <= every - names


def create_at_broker(shell: Shell, topic: str, queues: int = 1) -> None:
    """Create a topic as mqadmin does, which knows no limits."""

    async def create() -> None:
        async with connect(HostPort.parse(shell.endpoint), 30.0) as client:
            fields = topic_fields(topic, "NORMAL", queues, queues, READ_AND_WRITE)
            assert (await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)).code == ResponseCode.SUCCESS

    anyio.run(create)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("%RETRY%x", "names that begin with %RETRY% are those of retry topics of consumer groups"),
        ("%DLQ%x", "names that begin with %DLQ% are those of dead letter topics of consumer groups"),
        ("%LMQ%x", "names that begin with %LMQ% are those of light message queues"),
        *(
            (name, f"{name} is a topic of the brokers")
            for name in ("RMQ_SYS_X", "TBW102", "broker-a", "DefaultCluster")
        ),
    ],
)
def test_topics_of_the_brokers_are_not_created(shell: Shell, name: str, reason: str) -> None:
    assert shell.refused("topics", "create", name) == f"{reason}: choose another name"


def test_invalid_topic_commands_are_refused(shell: Shell) -> None:
    assert "characters" in shell.refused("topics", "create", "not a topic")
    assert shell.refused("topics", "delete", "nowhere", "--yes").startswith("there is no topic nowhere; ")
    assert shell.refused("topics", "update", "nowhere", "--queues", 2).startswith("there is no topic nowhere; ")
    for words in (("create",), ("made",), ("make", "x", "y")):
        done = shell.run("topics", *words)
        assert (done.status, done.out) == (2, "")
        assert done.err.startswith("usage: gantry topics ")


def test_create_does_not_change_an_existing_topic(shell: Shell) -> None:
    topic = shell.topic("kept", kind="FIFO", queues=3)
    assert shell.refused("topics", "create", topic) == "topic kept exists; `gantry topics update` changes it"
    shown = shell.ok("topics", "show", topic, "--json").object
    assert (shown["type"], len(shown["queues"])) == ("FIFO", 3)


def test_update_changes_only_the_given_properties(shell: Shell) -> None:
    topic = shell.topic("changed", kind="FIFO", queues=3)
    assert shell.ok("topics", "update", topic, "--queues", 5).out == "topic changed updated\n"
    shown = shell.ok("topics", "show", topic, "--json").object
    assert (shown["type"], len(shown["queues"])) == ("FIFO", 5)
    assert shell.refused("topics", "update", topic, status=2).startswith("nothing to change: ")


def test_update_asks_before_it_removes_queues_with_messages(shell: Shell) -> None:
    topic = shell.topic("fewer", queues=4)
    shell.ok("topics", "update", topic, "--queues", 3)
    shell.ok("send", topic, "x", "--count", 3)
    question = "remove queues with 2 messages from topic fewer? There is no terminal to ask: give --yes"
    assert shell.refused("topics", "update", topic, "--queues", 1, status=2) == question
    assert shell.ok("topics", "update", topic, "--queues", 1, "--yes").out == "topic fewer updated\n"


def test_update_asks_before_it_changes_the_type(shell: Shell) -> None:
    topic = shell.topic("typed", queues=1)
    question = "change the type of messages of topic typed from NORMAL to FIFO? There is no terminal to ask: give --yes"
    assert shell.refused("topics", "update", topic, "--type", "FIFO", status=2) == question
    assert shell.ok("topics", "show", topic, "--json").object["type"] == "NORMAL"
    shell.ok("topics", "update", topic, "--type", "NORMAL")
    shell.ok("topics", "update", topic, "--type", "FIFO", "--yes")
    assert shell.ok("topics", "show", topic, "--json").object["type"] == "FIFO"


def test_topics_that_are_needed_are_not_deleted(shell: Shell) -> None:
    shell.ok("groups", "create", "needing")
    for topic, owner in (
        ("SELF_TEST_TOPIC", "the brokers"),
        ("broker-a", "the brokers"),
        ("DefaultHeartBeatSyncerTopic", "Gantry"),
        ("%RETRY%needing", "consumer group needing"),
        ("%DLQ%needing", "consumer group needing"),
    ):
        assert shell.refused("topics", "delete", topic, "--yes") == f"topic {topic} belongs to {owner}"
    shell.ok("groups", "delete", "needing", "--yes")


def test_delete_asks_first(shell: Shell) -> None:
    topic = shell.topic("asked")
    assert shell.refused("topics", "delete", topic, status=2).endswith("There is no terminal to ask: give --yes")
    assert shell.on_terminal("topics", "delete", topic, typed=b"n\n").status == 1
    assert shell.ok("topics", "show", topic, "--json").object["topic"] == topic
    assert shell.on_terminal("topics", "delete", topic, typed=b"y\n").status == 0
    assert shell.refused("topics", "show", topic).startswith("there is no topic asked; ")


def test_common_options_may_stand_before_the_action(shell: Shell) -> None:
    assert Shell("127.0.0.1:1").run("topics", "--endpoint", shell.endpoint, "list", "--json").status == 0
    assert shell.ok("topics", "--json", "--all", "list").out == shell.ok("topics", "list", "--all", "--json").out


def test_topic_with_thousands_of_queues_is_listed_and_shown(shell: Shell) -> None:
    create_at_broker(shell, "wide", 2500)
    assert _row(shell.ok("topics").out, "wide")[:4] == ["wide", "NORMAL", "2,500", "0"]
    assert len(shell.ok("topics", "show", "wide", "--json").object["queues"]) == 2500
    shell.ok("topics", "delete", "wide", "--yes")
