import asyncio
import subprocess
import sys
import time
from pathlib import Path

from remoting.codes import RequestCode
from tests.cluster.client import Client, ok, send_fields, v2
from tests.proxy.tools.cli.shell import Shell, environment


def _bodies(shell: Shell, topic: str, *words: object) -> list[str]:
    return [message["body"] for message in shell.ok("tail", topic, "--json", *words).objects]


def test_tail_starts_at_the_given_point(shell: Shell) -> None:
    topic = shell.topic("tail-from", queues=1)
    every = [f"m{number}" for number in range(8)]
    shell.ok("send", topic, "--lines", "--in-flight", 1, stdin="\n".join(every[:4]).encode())
    half = int(time.time() * 1000) + 1
    time.sleep(0.01)
    shell.ok("send", topic, "--lines", "--in-flight", 1, stdin="\n".join(every[4:]).encode())
    assert _bodies(shell, topic) == every
    assert _bodies(shell, topic, "--from", "earliest") == every
    assert _bodies(shell, topic, "--from", "-3") == every[-3:]
    assert _bodies(shell, topic, "--from", half) == every[4:]
    assert _bodies(shell, topic, "--from", "1h") == every
    assert _bodies(shell, topic, "--from", "latest") == []


def test_tail_reads_many_pages_of_several_queues(shell: Shell) -> None:
    topic = shell.topic("tail-pages")
    lines = [f"m{number}" for number in range(1000)]
    shell.ok("send", topic, "--lines", stdin="\n".join(lines).encode())
    found = shell.ok("tail", topic, "--from", "earliest", "--json").objects
    assert sorted(message["body"] for message in found) == sorted(lines)
    assert [message["stored"] for message in found] == sorted(message["stored"] for message in found)
    for queue in range(4):
        offsets = [message["offset"] for message in found if message["queue"] == queue]
        assert offsets == list(range(250))


def test_tail_of_one_queue_and_some_tags(shell: Shell) -> None:
    topic = shell.topic("tail-some", queues=2)
    sent = [shell.ok("send", topic, "--tag", tag, tag, "--json").object for tag in "aabbcc"]
    for number in (0, 1):
        expected = [tag for tag, one in zip("aabbcc", sent, strict=True) if one["queue"] == number]
        assert _bodies(shell, topic, "--queue", number) == expected
        assert _bodies(shell, topic, "--queue", f"broker-a/{number}") == expected
    assert _bodies(shell, topic, "--filter", "a || c") == ["a", "a", "c", "c"]
    assert _bodies(shell, topic, "--sql", "TAGS = 'b'") == ["b", "b"]
    assert shell.refused("tail", topic, "--queue", "9") == f"topic {topic} has no queue 9"


def test_following_until_ctrl_c(shell: Shell) -> None:
    topic = shell.topic("tail-follow")
    shell.ok("send", topic, "before")
    with shell.following("tail", topic, "--follow") as tail:
        assert tail.line().rstrip().endswith("before")
        for body in ("first", "second", "third"):
            shell.ok("send", topic, body)
            assert tail.line().rstrip().endswith(body)
        done = tail.interrupt()
    assert (done.status, done.out, done.err) == (0, "", "")


def test_tail_changes_nothing(shell: Shell) -> None:
    topic = shell.topic("tail-quiet")
    shell.ok("send", topic, "x")
    before = shell.ok("topics", "--all", "--json").out, shell.ok("groups", "--all", "--json").out
    assert _bodies(shell, topic, "--from", "earliest") == ["x"]
    assert (shell.ok("topics", "--all", "--json").out, shell.ok("groups", "--all", "--json").out) == before


def test_tail_escapes_control_characters(shell: Shell) -> None:
    topic = shell.topic("tail-escape")
    shell.ok("send", topic, "-", stdin=b"\x1b[2Jbell\x07 [red]markup[/red]\nline")
    assert shell.ok("tail", topic).out.rstrip().endswith(r"\x1b[2Jbell\x07 [red]markup[/red]\nline")
    shell.ok("send", topic, "-", stdin=b"\xff\xfe")
    assert shell.ok("tail", topic, "--from", "-1").out.rstrip().endswith("<2 bytes: ff fe>")


def test_tail_continues_after_an_invalid_compressed_body(shell: Shell, tmp_path: Path) -> None:
    topic = shell.topic("tail-broken", queues=1)
    shell.ok("send", topic, "before")
    asyncio.run(_send_broken(shell.endpoint, topic))
    shell.ok("send", topic, "behind")
    before, broken, behind = shell.ok("tail", topic, "--from", "earliest", "--json").objects
    assert (before["body"], behind["body"]) == ("before", "behind")
    assert broken["body"] == "not compressed"
    assert "ZLIB" in broken["error"]
    assert "ZLIB" in shell.ok("tail", topic, "--from", "earliest").out
    shell.ok("export", "--topics", topic, "--groups", "--messages", "-o", tmp_path / "x.jsonl")
    received = shell.ok("receive", topic, "--group", f"{topic}-g", "--max", 3, "--json").objects
    assert len(received) == 3


async def _send_broken(endpoint: str, topic: str) -> None:
    async with Client(endpoint) as client:
        fields = {**v2(client.named(send_fields(topic, ""))), "f": "1"}
        ok(await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"not compressed"))


def test_tail_replaces_unencodable_characters(shell: Shell) -> None:
    topic = shell.topic("tail-ascii", queues=1)
    shell.ok("send", topic, "naïve")
    words = (sys.executable, "-m", "proxy", "tail", topic, "--from", "earliest")
    done = subprocess.run(
        words, env=environment(shell.endpoint, {"PYTHONIOENCODING": "ascii"}), capture_output=True, check=True
    )
    assert rb"na\xefve" in done.stdout
