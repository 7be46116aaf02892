"""The command line through Gantry."""

import asyncio
from typing import Any

import pytest

from tests.cluster.client import Client, unique, wait_until
from tests.cluster.servers import Gantry
from tests.proxy.tools.cli.shell import Done, Shell

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240, func_only=True)]


async def _ok(shell: Shell, *words: object, stdin: bytes = b"") -> Done:
    return await asyncio.to_thread(lambda: shell.ok(*words, stdin=stdin))


async def _topic(shell: Shell, name: str, kind: str = "NORMAL") -> str:
    """Create a topic of two queues and wait until clients can use it."""
    topic = unique(name)
    await _ok(shell, "topics", "create", topic, "--type", kind, "--queues", 2)

    async def routed() -> bool:
        return (await asyncio.to_thread(shell.run, "tail", topic)).status == 0

    await wait_until(routed, "the new topic's route")
    return topic


async def _stats(shell: Shell, topic: str, count: int) -> dict[str, Any]:
    """Return the topic once all messages are in its queues, a moment after the responses to the sends."""

    async def counted() -> bool:
        return bool((await _ok(shell, "topics", "show", topic, "--json")).object["messages"] == count)

    await wait_until(counted, f"{count} messages")
    return (await _ok(shell, "topics", "show", topic, "--json")).object


def _bodies(done: Done) -> list[str]:
    return sorted(message["body"] for message in done.objects)


async def test_sent_messages_are_counted_listed_and_received(gantry: Gantry) -> None:
    shell = Shell(gantry.address)
    topic, group = await _topic(shell, "line"), unique("group")
    lines = [f"m{number}" for number in range(300)]
    summary = (await _ok(shell, "send", topic, "--lines", "--json", stdin="\n".join(lines).encode())).object
    assert summary["sent"] == 300
    shown = await _stats(shell, topic, 300)
    assert [item["messages"] for item in shown["queues"]] == [150, 150]
    assert topic in [item["topic"] for item in (await _ok(shell, "topics", "--json")).objects]
    assert _bodies(await _ok(shell, "tail", topic, "--from", "earliest", "--json")) == sorted(lines)
    assert len((await _ok(shell, "tail", topic, "--from", "-7", "--json")).objects) == 7
    received = await _ok(shell, "receive", topic, "--group", group, "--max", 300, "--wait", "10s", "--json")
    assert _bodies(received) == sorted(lines)
    assert (await _ok(shell, "receive", topic, "--group", group, "--wait", "0s", "--json")).out == ""


async def test_tail_filters_by_tag_and_follows_new_messages(gantry: Gantry) -> None:
    shell = Shell(gantry.address)
    topic = await _topic(shell, "tags")
    with shell.following("tail", topic, "--from", "earliest", "--follow", "--filter", "a") as tail:
        await _ok(shell, "send", topic, "--tag", "b", "not this")
        await _ok(shell, "send", topic, "--tag", "a", "--key", "k", "--property", "x=y", "this")
        assert "tag=a  key=k  this" in await asyncio.to_thread(tail.line)
        done = await asyncio.to_thread(tail.interrupt)
    assert (done.status, done.out, done.err) == (0, "", "")
    await _stats(shell, topic, 2)
    [message] = (await _ok(shell, "tail", topic, "--filter", "a", "--json")).objects
    assert (message["keys"], message["properties"]["x"]) == (["k"], "y")


async def test_groups_are_listed_and_reset(gantry: Gantry) -> None:
    shell = Shell(gantry.address)
    topic, group = await _topic(shell, "groups"), unique("group")
    await _ok(shell, "send", topic, "x", "--count", 10)
    await _stats(shell, topic, 10)
    async with Client(gantry.address) as member:
        await member.heartbeat({group: [topic]})
        for queue in (0, 1):
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": 5}
            await member.get(15, member.named(fields))
        shown = (await _ok(shell, "groups", "show", group, "--json")).object
        assert [item["client"] for item in shown["members"]] == [member.client_id]
        offsets = {item["queue"]: item["offset"] for item in shown["queues"] if item["topic"] == topic}
        assert (shown["lag"], offsets) == (0, {0: 5, 1: 5})

    async def left() -> bool:
        return not (await _ok(shell, "groups", "show", group, "--json")).object["members"]

    # Without members, the brokers of these tests leave the reset to the tool.
    await wait_until(left, "the member's departure")
    await _ok(shell, "groups", "reset", group, "--topic", topic, "--to", "earliest", "--yes")
    assert (await _ok(shell, "groups", "show", group, "--json")).object["lag"] == 10
    assert group in (await _ok(shell, "groups")).out


async def test_a_topic_is_deleted(gantry: Gantry) -> None:
    shell = Shell(gantry.address)
    topic = await _topic(shell, "doomed", "FIFO")
    await _ok(shell, "send", topic, "x", "--group", "g")
    await _ok(shell, "topics", "delete", topic, "--yes")
    error_text = await asyncio.to_thread(shell.refused, "topics", "show", topic)
    assert error_text.startswith(f"there is no topic {topic}; ")
    assert (await asyncio.to_thread(shell.refused, "send", topic, "x")).startswith(f"there is no topic {topic}; ")
