import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.servers import ROOT
from tests.proxy.tools.cli.shell import LIMIT, Shell, environment, messages_of


def test_send_sets_all_options(shell: Shell) -> None:
    topic = shell.topic("send-all")
    done = shell.ok("send", topic, "--tag", "a", "--key", "k1", "--key", "k2", "--property", "x=y", "héllo", "--json")
    sent = done.object
    assert sent.keys() == {"id", "topic", "broker", "queue", "offset"}
    [message] = messages_of(shell, topic)
    assert message["id"] == sent["id"]
    assert (message["queue"], message["offset"]) == (sent["queue"], sent["offset"])
    assert (message["tag"], message["keys"], message["body"]) == ("a", ["k1", "k2"], "héllo")
    assert message["properties"]["x"] == "y"
    assert abs(message["born"] - time.time() * 1000) < 60_000


def test_send_prints_the_queue_and_offset(shell: Shell) -> None:
    topic = shell.topic("send-told", queues=1)
    assert re.fullmatch(r"sent [0-9A-F]{32} to broker-a/0, offset 0\n", shell.ok("send", topic, "x").out)


def test_send_takes_bodies_from_stdin_file_or_size(shell: Shell, tmp_path: Path) -> None:
    topic = shell.topic("send-bodies", queues=1)
    file = tmp_path / "body"
    file.write_bytes(b"\xff\x00binary")
    shell.ok("send", topic, "-", stdin=b"from\nstdin")
    shell.ok("send", topic, f"@{file}")
    shell.ok("send", topic, "--size", "1KiB")
    first, second, third = messages_of(shell, topic)
    assert first["body"] == "from\nstdin"
    assert second["body_base64"] == "/wBiaW5hcnk="
    assert "body" not in second
    assert len(third["body"]) == 1024


def test_send_lines_sends_a_message_per_line(shell: Shell) -> None:
    topic = shell.topic("send-lines", queues=1)
    summary = shell.ok("send", topic, "--lines", "--in-flight", 1, "--json", stdin=b"one\r\ntwo\n\nlast").object
    assert (summary["sent"], summary["bytes"]) == (3, 10)
    assert [message["body"] for message in messages_of(shell, topic)] == ["one", "two", "last"]


def test_send_reads_lines_and_body_from_a_pipe(shell: Shell) -> None:
    topic = shell.topic("send-pipe", queues=1)
    command = f"seq 3 | {sys.executable} -m proxy send {topic} --lines --in-flight 1 --json"
    command += f" && printf 'a\\nb' | {sys.executable} -m proxy send {topic} - --json"
    done = subprocess.run(
        command, shell=True, capture_output=True, cwd=ROOT, env=environment(shell.endpoint), timeout=LIMIT, check=True
    )
    assert (len(done.stdout.splitlines()), done.stderr) == (2, b"")
    assert [message["body"] for message in messages_of(shell, topic)] == ["1", "2", "3", "a\nb"]


def test_send_reads_an_empty_device_and_refuses_a_closed_stdin(shell: Shell) -> None:
    topic = shell.topic("send-nothing", queues=1)
    command = f"{sys.executable} -m proxy send {topic} --lines"
    done = _in_shell(shell, f"{command} --json < /dev/null")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["sent"] == 0
    closed = _in_shell(shell, f"{command} <&-")
    assert (closed.returncode, closed.stderr) == (2, "gantry: stdin is closed\n")


def _in_shell(shell: Shell, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        shell=True,
        capture_output=True,
        cwd=ROOT,
        env=environment(shell.endpoint),
        timeout=LIMIT,
        text=True,
        check=False,
    )


def test_send_message_group_keeps_queue_and_order(shell: Shell) -> None:
    topic = shell.topic("send-fifo", "FIFO", queues=4)
    lines = [f"{number}" for number in range(200)]
    shell.ok("send", topic, "--lines", "--group", "alice", stdin="\n".join(lines).encode())
    found = messages_of(shell, topic)
    assert len({message["queue"] for message in found}) == 1
    assert [message["body"] for message in found] == lines
    assert {message["message_group"] for message in found} == {"alice"}


def test_send_delayed_message_is_delivered_later(shell: Shell) -> None:
    topic = shell.topic("send-delay", "DELAY")
    begin = time.time()
    sent = shell.ok("send", topic, "later", "--delay", "2s", "--json").object
    assert sent["offset"] is None
    assert messages_of(shell, topic) == [] or time.time() - begin > 2
    with shell.following("tail", topic, "--from", "earliest", "--follow") as tail:
        assert tail.line().rstrip().endswith("later")
    assert time.time() - begin >= 2


def test_send_ten_thousand_shows_progress(shell: Shell) -> None:
    topic = shell.topic("send-bulk")
    done = shell.on_terminal("send", topic, "--size", 300, "--count", 10_000)
    assert done.status == 0, done.out
    assert re.search(r"[1-9]\d*/10000", done.out), "the bar has shown how far it is"
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.out)
    assert re.search(
        rf"10,000 messages \(3,000,000 bytes\) sent to {topic} in [\d.]+ s: [\d,]+/s, p50 [\d.]+ ms, p99 [\d.]+ ms",
        plain,
    ), plain[-500:]
    assert shell.ok("topics", "show", topic, "--json").object["messages"] == 10_000


def test_send_json_prints_a_summary(shell: Shell) -> None:
    topic = shell.topic("send-summary")
    summary = shell.ok("send", topic, "x", "--count", 20, "--rate", "20/s", "--json").object
    assert (summary["topic"], summary["sent"], summary["bytes"]) == (topic, 20, 20)
    # The twentieth is sent 0.95 s after the first.
    assert summary["seconds"] >= 0.95
    assert 0 < summary["p50_ms"] <= summary["p99_ms"]
    assert shell.ok("topics", "show", topic, "--json").object["messages"] == 20


def test_send_ctrl_c_prints_a_summary(shell: Shell) -> None:
    topic = shell.topic("send-break")
    words = ("--count", 100_000, "--rate", "50/s", "--in-flight", 1, "--json")
    with shell.following("send", topic, "x", *words) as sending:
        deadline = time.monotonic() + LIMIT
        while not messages_of(shell, topic):
            assert time.monotonic() < deadline
        done = sending.interrupt()
    assert (done.status, done.err) == (130, "")
    # One may have been in flight.
    assert 0 <= shell.ok("topics", "show", topic, "--json").object["messages"] - done.object["sent"] <= 1


def test_send_bulk_error_is_one_sentence(shell: Shell) -> None:
    topic = shell.topic("send-wrong")
    done = shell.run("send", topic, "--size", "5MB", "--count", 3, "--json")
    assert done.status == 1
    assert done.object["sent"] == 0
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "a message needs BODY, --size or --lines"),
        (("x", "--size", "3"), "BODY and --size exclude each other"),
        (("--size", "99999999999"), "--size 99999999999: a message has at most 16,777,216 bytes"),
        (("--lines", "--count", "3"), "--lines and --count exclude each other"),
    ],
)
def test_send_contradictory_arguments_are_refused(shell: Shell, words: tuple[str, ...], sentence: str) -> None:
    assert shell.refused("send", "any", *words, status=2) == sentence


def test_send_to_a_missing_topic_fails(shell: Shell) -> None:
    assert shell.refused("send", "nowhere", "x").startswith("there is no topic nowhere; ")


def test_send_of_a_missing_file_fails(shell: Shell) -> None:
    assert shell.refused("send", "any", "@/no/such/file") == "/no/such/file: No such file or directory"
