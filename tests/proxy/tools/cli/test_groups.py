import asyncio
import re
import time
from pathlib import Path

import pytest

from proxy.operations.groups.offset_table import QueueKey, QueueOffsets
from proxy.settings.replication import SyncSettings
from proxy.tools.cli import groups
from tests.cluster.client import Client
from tests.cluster.servers import Gantry
from tests.proxy.tools.cli.shell import Shell, embedded

pytestmark = pytest.mark.anyio


def _state(shell: Shell, group: str) -> tuple[int, list[int]]:
    """Return the lag of the group, and its offset in each queue."""
    shown = shell.ok("groups", "show", group, "--json").object
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
    assert line.split() == ["listed", "offline", "-", "16", "0", topic, "4", "0"]
    [listed] = [item for item in shell.ok("groups", "--json").objects if item["group"] == "listed"]
    assert (listed["topics"], listed["lag"], listed["members"], listed["fifo"]) == ([topic], 4, 0, False)
    detail = shell.ok("groups", "show", "listed").out
    assert detail.startswith("listed  0 members, in any order, 4 messages behind\n")
    assert re.search(rf"^{topic} +broker-a +0 +5 +7 +2$", detail, re.MULTILINE)
    assert _state(shell, "listed") == (4, [5, 5])
    shell.ok("groups", "update", "listed", "--no-enabled")
    assert {item["group"]: item["state"] for item in shell.ok("groups", "--json").objects}["listed"] == "disabled"


def test_retries_are_counted_apart_from_the_lag() -> None:
    queues = [
        QueueOffsets(QueueKey("orders", "broker-a", 0), 7, 4, 0, 0),
        QueueOffsets(QueueKey("%RETRY%billing", "broker-a", 0), 5, 3, 0, 0),
        QueueOffsets(QueueKey("%RETRY%billing_orders", "broker-a", 0), 2, 1, 0, 0),
    ]
    described = groups._described("billing", {"broker-a": {}}, queues)
    assert (described["lag"], described["retry_backlog"]) == (6, 3)
    assert groups._behind(described) == "3 messages behind, 3 to be retried"
    assert groups._behind({**described, "lag": 3, "retry_backlog": 0}) == "3 messages behind"


def test_system_groups_are_listed_on_request(shell: Shell) -> None:
    assert "TOOLS_CONSUMER" not in shell.ok("groups").out
    assert "CID_" not in shell.ok("groups").out
    assert "TOOLS_CONSUMER" in shell.ok("groups", "--all").out


def test_topics_and_groups_of_proxies_are_system_ones(shell: Shell) -> None:
    settings = SyncSettings()
    for topic in (settings.topic, settings.renewals):
        shell.topic(topic)
        shell.ok("groups", "create", f"CID_{topic}")
        assert topic not in shell.ok("topics").out + shell.ok("groups").out
        assert topic in shell.ok("topics", "--all").out
        assert topic in shell.ok("groups", "--all").out


async def test_group_members_are_shown(gantry: Gantry, shell: Shell) -> None:
    topic = await asyncio.to_thread(shell.topic, "groups-members")
    async with Client(gantry.address, "client-1") as client:
        await client.heartbeat({"members": [topic]})
        shown = (await asyncio.to_thread(shell.ok, "groups", "show", "members", "--json")).object
        [member] = shown["members"]
        assert (member["client"], member["address"]) == ("client-1", client.local_address)
        assert (member["language"], member["version"]) == ("JAVA", "5.3.4")
        assert "client-1" in (await asyncio.to_thread(shell.ok, "groups", "show", "members")).out
        listed = (await asyncio.to_thread(shell.ok, "groups", "--json")).objects
        assert {item["group"]: item["state"] for item in listed}["members"] == "online"


async def test_group_with_members_is_not_deleted(gantry: Gantry, shell: Shell) -> None:
    topic = await asyncio.to_thread(shell.topic, "groups-kept")
    words = ("groups", "delete", "kept", "--yes")
    async with Client(gantry.address, "client-1") as client:
        await client.heartbeat({"kept": [topic]})
        refusal = await asyncio.to_thread(shell.refused, *words)
        assert refusal == "consumer group kept has members: client-1"
    await asyncio.to_thread(shell.ok, "groups", "show", "kept")


def test_group_reset_moves_offsets(shell: Shell) -> None:
    topic = _consumed(shell, "groups-reset", "moved")
    middle = int(time.time() * 1000) + 1
    time.sleep(0.01)
    shell.ok("send", topic, "x", "--count", 4)
    words = ("groups", "reset", "moved", "--yes", "--topic", topic, "--to")
    assert shell.ok(*words, "earliest").out.startswith(f"consumer group moved reset in topic {topic}\n")
    assert _state(shell, "moved") == (14, [0, 0])
    shell.ok(*words, "latest")
    assert _state(shell, "moved") == (0, [7, 7])
    done = shell.ok(*words, middle, "--json").object
    assert (done["group"], done["topic"], done["done"]) == ("moved", topic, "reset")
    assert _state(shell, "moved") == (4, [5, 5])
    # The group continues from that offset.
    assert len(shell.ok("receive", topic, "--group", "moved", "--max", 4, "--json").objects) == 4


def test_dry_run_of_a_reset_changes_nothing(shell: Shell) -> None:
    topic = _consumed(shell, "groups-dry", "dry")
    words = ("groups", "reset", "dry", "--topic", topic, "--to", "earliest", "--dry-run")
    done = shell.ok(*words, "--json").object
    assert done["done"] == "would be reset"
    assert [(queue["from"], queue["to"]) for queue in done["queues"]] == [(5, 0), (5, 0)]
    assert re.search(r"^broker-a +1 +5 +0$", shell.ok(*words).out, re.MULTILINE)
    assert _state(shell, "dry") == (0, [5, 5])


def test_reset_asks_for_confirmation(shell: Shell) -> None:
    topic = _consumed(shell, "groups-asked", "asked")
    shell.ok("send", topic, "x", "--count", 4)
    words = ("groups", "reset", "asked", "--topic", topic, "--to")
    refusal = shell.refused(*words, "latest", status=2)
    question = f"reset consumer group asked in topic {topic}: skip 4 messages and repeat 0?"
    assert refusal == f"{question} There is no terminal to ask: give --yes"
    denied = shell.on_terminal(*words, "earliest", typed=b"n\n")
    assert denied.status == 1
    assert "skip 0 messages and repeat 10? [y/N]" in denied.out
    assert _state(shell, "asked") == (4, [5, 5])
    assert shell.on_terminal(*words, "latest", typed=b"y\n").status == 0
    assert _state(shell, "asked") == (0, [7, 7])


async def test_reset_warns_of_members(gantry: Gantry, shell: Shell) -> None:
    topic = await asyncio.to_thread(shell.topic, "groups-warned")
    async with Client(gantry.address) as client:
        await client.heartbeat({"warned": [topic]})
        words = ("groups", "reset", "warned", "--topic", topic, "--to", "latest", "--dry-run")
        done = await asyncio.to_thread(shell.run, *words)
    assert done.status == 0
    assert "consumer group warned has 1 members" in done.err


def test_group_is_created_changed_and_deleted(shell: Shell) -> None:
    assert shell.ok("groups", "create", "whole", "--fifo", "--retries", 5).out == "consumer group whole created\n"
    shown = shell.ok("groups", "show", "whole", "--json").object
    assert (shown["fifo"], shown["retries"], shown["enabled"]) == (True, 5, True)
    assert shell.refused("groups", "create", "whole").startswith("consumer group whole exists; ")
    shell.ok("groups", "update", "whole", "--no-enabled")
    shown = shell.ok("groups", "show", "whole", "--json").object
    assert (shown["fifo"], shown["retries"], shown["enabled"]) == (True, 5, False)
    assert shell.refused("groups", "update", "whole", status=2).startswith("nothing to change: ")
    shell.ok("groups", "delete", "whole", "--yes")
    assert shell.refused("groups", "show", "whole").startswith("there is no consumer group whole; ")


def test_invalid_group_commands_are_refused(shell: Shell) -> None:
    topic = shell.topic("groups-refused")
    assert shell.refused("groups", "show", "missing").startswith("there is no consumer group missing; ")
    refusal = shell.refused("groups", "reset", "missing", "--topic", topic, "--to", "latest")
    assert refusal.startswith("there is no consumer group missing; ")
    assert shell.run("groups", "reset", "missing").status == 2
    assert shell.run("groups", "show", "missing", "--topic", topic).status == 2


@pytest.mark.parametrize("name", ["TOOLS_CONSUMER", "CID_RMQ_SYS_X"])
def test_groups_of_the_brokers_are_not_created(shell: Shell, name: str) -> None:
    reason = f"{name} is a consumer group of the brokers"
    assert shell.refused("groups", "create", name) == f"{reason}: choose another name"
    assert shell.refused("groups", "create", "%RETRY%g").startswith("names that begin with %RETRY% are those of retry ")


def test_topics_and_groups_of_the_settings_are_listed_on_request_only(tmp_path: Path) -> None:
    names = {"shared-members", "shared-renewals"}
    sync = '[sync]\ntopic = "shared-members"\nrenewals = "shared-renewals"\n'
    with Gantry(tmp_path, "", embedded(tmp_path / "data") + sync) as gantry:
        shell = Shell(gantry.address)
        for name in sorted(names):
            shell.topic(name)
            shell.ok("groups", "create", f"CID_{name}")
        assert names.isdisjoint(item["topic"] for item in shell.ok("topics", "--json").objects)
        assert names <= {item["topic"] for item in shell.ok("topics", "--all", "--json").objects}
        groups = {f"CID_{name}" for name in names}
        assert groups.isdisjoint(item["group"] for item in shell.ok("groups", "--json").objects)
        assert groups <= {item["group"] for item in shell.ok("groups", "--all", "--json").objects}
