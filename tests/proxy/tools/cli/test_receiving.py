from typing import Any

from tests.proxy.tools.cli.shell import Shell


def _fill(shell: Shell, name: str, count: int = 5) -> str:
    topic = shell.topic(name)
    shell.ok("send", topic, "--lines", stdin="\n".join(f"m{number}" for number in range(count)).encode())
    return topic


def _bodies(found: list[dict[str, Any]]) -> list[str]:
    return sorted(message["body"] for message in found)


def _lag(shell: Shell, group: str) -> int:
    lag: int = shell.ok("groups", "show", group, "--json").object["lag"]
    return lag


def test_receive_acknowledges_messages(shell: Shell) -> None:
    topic = _fill(shell, "receive-all")
    found = shell.ok("receive", topic, "--group", "receivers", "--max", 5, "--json").objects
    assert _bodies(found) == ["m0", "m1", "m2", "m3", "m4"]
    assert {message["attempt"] for message in found} == {1}
    assert shell.ok("receive", topic, "--group", "receivers", "--wait", "1s").out == ""
    assert _lag(shell, "receivers") == 0


def test_receive_stops_at_the_count(shell: Shell) -> None:
    topic = _fill(shell, "receive-max")
    first = shell.ok("receive", topic, "--group", "max", "--max", 2, "--json").objects
    rest = shell.ok("receive", topic, "--group", "max", "--max", 3, "--json").objects
    assert (len(first), len(rest)) == (2, 3)
    assert _bodies(first + rest) == ["m0", "m1", "m2", "m3", "m4"]


def test_receive_without_ack_is_redelivered(shell: Shell) -> None:
    topic = _fill(shell, "receive-again", 1)
    words = ("receive", topic, "--group", "again", "--max", 1, "--json")
    assert shell.ok(*words, "--no-ack", "--invisible", "1s").object["attempt"] == 1
    # Delivered through the retry topic, whose name the acknowledgement carries.
    assert shell.ok(*words, "--wait", "30s").object["attempt"] == 2
    assert shell.ok(*words, "--wait", "2s").out == ""


def test_receive_filters_by_tag_and_sql(shell: Shell) -> None:
    topic = shell.topic("receive-some")
    for tag, price in (("a", 1), ("b", 2), ("c", 3)):
        shell.ok("send", topic, "--tag", tag, "--property", f"price={price}", f"{tag}{price}")
    tagged = shell.ok("receive", topic, "--group", "tagged", "--filter", "a || c", "--max", 2, "--json").objects
    assert _bodies(tagged) == ["a1", "c3"]
    fitting = shell.ok("receive", topic, "--group", "sql", "--sql", "price > 1", "--max", 2, "--json").objects
    assert _bodies(fitting) == ["b2", "c3"]
    assert "character 7" in shell.refused("receive", topic, "--group", "bad", "--sql", "price >")


def test_following_until_ctrl_c(shell: Shell) -> None:
    topic = shell.topic("receive-follow")
    with shell.following("receive", topic, "--group", "follow", "--follow") as receiving:
        for body in ("first", "second"):
            shell.ok("send", topic, body)
            assert receiving.line().rstrip().endswith(body)
        done = receiving.interrupt()
    assert (done.status, done.out, done.err) == (0, "", "")


def test_receive_ctrl_c_while_waiting(shell: Shell) -> None:
    topic = _fill(shell, "receive-wait", 1)
    with shell.following("receive", topic, "--group", "wait", "--wait", "1h") as receiving:
        assert receiving.line().rstrip().endswith("m0")
        done = receiving.interrupt()
    assert (done.status, done.out, done.err) == (130, "", "")


def test_receive_keeps_order_of_a_message_group(shell: Shell) -> None:
    topic = shell.topic("receive-fifo", "FIFO", queues=1)
    lines = [f"m{number}" for number in range(40)]
    shell.ok("send", topic, "--lines", "--group", "g", stdin="\n".join(lines).encode())
    held = shell.ok("receive", topic, "--group", "orderly", "--fifo", "--max", 1, "--no-ack", "--json").object
    assert held["body"] == "m0"
    assert shell.ok("receive", topic, "--group", "orderly", "--fifo", "--wait", "0s").out == ""
    other = shell.ok("receive", topic, "--group", "other", "--fifo", "--max", 40, "--json").objects
    assert [message["body"] for message in other] == lines
