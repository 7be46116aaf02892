import asyncio
import re
import time

import pytest

from tests.cluster.client import Client
from tests.cluster.servers import Gantry
from tests.proxy.tools.cli.shell import Shell

pytestmark = pytest.mark.anyio


def _state(shell: Shell, group: str) -> tuple[int, list[int]]:
    """Return the lag of the group, and its offset in each queue."""
    shown = shell.ok("groups", group, "--json").object
    return shown["lag"], [item["offset"] for item in shown["queues"]]


def _consumed(shell: Shell, topic: str, group: str) -> str:
    shell.topic(topic, queues=2)
    shell.ok("send", topic, "x", "--count", 10)
    assert len(shell.ok("receive", topic, "--group", group, "--max", 10, "--json").objects) == 10
    return topic


def test_groups_are_listed_and_shown(shell: Shell) -> None:
    topic = _consumed(shell, "groups-list", "listed")
    shell.ok("send", topic, "x", "--count", 4)
    [line] = [line for line in shell.ok("groups").out.splitlines() if line.startswith("listed ")]
    assert line.split() == ["listed", "-", "16", "0", topic, "4"]
    [listed] = [item for item in shell.ok("groups", "--json").objects if item["group"] == "listed"]
    assert (listed["topics"], listed["lag"], listed["members"], listed["fifo"]) == ([topic], 4, 0, False)
    detail = shell.ok("groups", "listed").out
    assert detail.startswith("listed  0 members, in any order, 4 messages behind\n")
    assert re.search(rf"^{topic} +broker-a +0 +5 +7 +2$", detail, re.MULTILINE)
    assert _state(shell, "listed") == (4, [5, 5])


def test_system_groups_are_listed_on_request(shell: Shell) -> None:
    assert "TOOLS_CONSUMER" not in shell.ok("groups").out
    assert "TOOLS_CONSUMER" in shell.ok("groups", "--all").out


async def test_group_members_are_shown(gantry: Gantry, shell: Shell) -> None:
    topic = await asyncio.to_thread(shell.topic, "groups-members")
    async with Client(gantry.address, "client-1") as client:
        await client.heartbeat({"members": [topic]})
        shown = (await asyncio.to_thread(shell.ok, "groups", "members", "--json")).object
        [member] = shown["members"]
        assert (member["client"], member["address"]) == ("client-1", client.local_address)
        assert (member["language"], member["version"]) == ("JAVA", "5.3.4")
        assert "client-1" in (await asyncio.to_thread(shell.ok, "groups", "members")).out


def test_group_reset_moves_offsets(shell: Shell) -> None:
    topic = _consumed(shell, "groups-reset", "moved")
    middle = int(time.time() * 1000) + 1
    time.sleep(0.01)
    shell.ok("send", topic, "x", "--count", 4)
    words = ("groups", "reset", "moved", "--topic", topic, "--to")
    assert shell.ok(*words, "earliest").out == f"consumer group moved reset in topic {topic}\n"
    assert _state(shell, "moved") == (14, [0, 0])
    shell.ok(*words, "latest")
    assert _state(shell, "moved") == (0, [7, 7])
    assert shell.ok(*words, middle, "--json").object == {"group": "moved", "topic": topic, "done": "reset"}
    assert _state(shell, "moved") == (4, [5, 5])
    # The group continues from that offset.
    assert len(shell.ok("receive", topic, "--group", "moved", "--max", 4, "--json").objects) == 4


def test_what_is_refused(shell: Shell) -> None:
    topic = shell.topic("groups-refused")
    assert shell.refused("groups", "nobody").startswith("there is no consumer group nobody; ")
    missing = shell.refused("groups", "reset", "nobody", "--topic", topic, "--to", "latest")
    assert missing.startswith("there is no consumer group nobody; ")
    assert shell.refused("groups", "reset", "nobody", status=2).startswith("gantry groups reset NAME --topic")
    assert shell.refused("groups", "nobody", "--topic", topic, status=2).startswith("--topic and --to belong to")
