"""Commands that use the admin API, contexts, settings and completion."""

import asyncio
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cluster.client import Client
from tests.cluster.servers import HOST, Gantry
from tests.ports import free_port
from tests.proxy.admin.dead_letters import bury, message_id
from tests.proxy.tools.cli.shell import Done, Shell, embedded

_TOKEN = "a-token-for-writers"


class AdminShell(Shell):
    """A shell whose environment names an admin API. admin: its address."""

    def __init__(self, endpoint: str, admin: str, profiles: Path) -> None:
        super().__init__(endpoint)
        self.admin = admin
        self.variables = {
            "GANTRY_ADMIN": admin,
            "GANTRY_ADMIN_TOKEN": _TOKEN,
            "GANTRY_PROFILES": str(profiles),
        }

    def run(self, *words: object, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
        return super().run(*words, stdin=stdin, env={**self.variables, **(env or {})})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminShell]:
    directory = tmp_path_factory.mktemp("admin")
    port = free_port()
    admin = f'[admin]\nlisten = "{HOST}:{port}"\nwrite_token = "{_TOKEN}"\n'
    with Gantry(directory, "", embedded(directory / "data") + admin) as gantry:
        yield AdminShell(gantry.address, f"http://{HOST}:{port}", directory / "profiles.toml")


def test_message_is_listed_shown_located_and_resent(served: AdminShell) -> None:
    served.topic("seen", queues=1)
    sent = served.ok("send", "seen", "--key", "order-7", "--tag", "paid", '{"order": 7}', "--json").object
    listed = served.ok("message", "list", "seen", "--json").object
    assert (listed["message_id"], listed["keys"], listed["preview"]) == (sent["id"], ["order-7"], '{"order": 7}')
    assert served.ok("message", "list", "seen", "--key", "order-7", "--filter", "paid", "--json").objects == [listed]
    assert served.ok("message", "list", "seen", "--sql", "TAGS = 'open'", "--json").objects == []
    assert '"order": 7' in served.ok("message", "show", "seen", sent["id"]).out
    assert b'{"order": 7}'.hex() in served.ok("message", "show", "seen", sent["id"], "--body", "hex").out
    served.ok("receive", "seen", "--group", "reader", "--max", "1")
    assert served.ok("message", "groups", "seen", sent["id"], "--json").object == {
        "group": "reader",
        "state": "consumed",
        "retries": 0,
    }
    resend = ("message", "resend", "seen", sent["id"])
    question = f"send a copy of message {sent['id']} to every consumer group of topic seen?"
    assert served.refused(*resend, status=2) == f"{question} There is no terminal to ask: give --yes"
    assert "to consumer group reader? There is" in served.refused(*resend, "--group", "reader", status=2)
    assert len(served.ok("message", "list", "seen", "--json").objects) == 1
    served.ok(*resend, "--yes")
    assert len(served.ok("message", "list", "seen", "--json").objects) == 2
    served.ok("groups", "create", "not-yet")
    unknown = served.refused(*resend, "--group", "not-yet", "--yes")
    assert "choose `pop_retry` for gRPC and other popping consumers, or `retry` for remoting" in unknown
    for to, topic in (("retry", "%RETRY%not-yet"), ("pop_retry", "%RETRY%not-yet_seen")):
        done = served.ok(*resend, "--group", "not-yet", "--to", to, "--yes")
        assert done.out == f"message {sent['id']} sent to {topic}\n"
    needs_group = "--to needs --group, to whose retry topic the copy goes"
    assert served.refused(*resend, "--to", "retry", "--yes", status=2) == needs_group
    assert "no message" in served.refused("message", "show", "seen", "unknown")
    assert "missing" in served.refused("message", "list", "missing")
    assert "give an action" in served.refused("message", status=2)


def test_messages_of_one_queue_are_listed_by_its_printed_name(served: AdminShell) -> None:
    served.topic("placed", queues=1)
    served.ok("send", "placed", "x")
    listed = served.ok("message", "list", "placed", "--queue", "broker-a/0", "--json").object
    assert (listed["broker"], listed["queue"], listed["offset"]) == ("broker-a", 0, 0)
    assert served.refused("message", "list", "placed", "--queue", "broker-b/0")
    hidden = served.run("message", "list", "placed", env={"GANTRY_ADMIN_TOKEN": ""})
    assert "admin.contents" in hidden.out


def test_reader_without_token_gets_no_body(served: AdminShell) -> None:
    served.topic("closed", queues=1)
    sent = served.ok("send", "closed", "secret", "--json").object
    shown = served.run("message", "show", "closed", sent["id"], env={"GANTRY_ADMIN_TOKEN": ""})
    assert "secret" not in shown.out
    assert "admin.contents" in shown.out
    for search in ("--key", "--sql"):
        listed = served.run("message", "list", "closed", search, "a = 1", env={"GANTRY_ADMIN_TOKEN": ""})
        assert (listed.status, "admin.contents" in listed.err) == (1, True)
    refused = served.run("drain", "--yes", env={"GANTRY_ADMIN_TOKEN": ""})
    assert refused.status == 1
    assert "--token" in refused.err


def test_message_without_a_trace_is_an_error(served: AdminShell) -> None:
    assert "no client has written a trace" in served.refused("trace", "unknown")
    served.topic("own-traces", queues=1)
    assert "no client has written a trace" in served.refused("trace", "unknown", "--topic", "own-traces")
    assert "own-missing" in served.refused("trace", "unknown", "--topic", "own-missing")


def test_clients_and_connections_show_a_following_command(served: AdminShell) -> None:
    served.topic("followed")
    with served.following("tail", "followed", "--follow"):
        connections = []
        for _ in range(100):
            connections = served.ok("connections", "--protocol", "remoting", "--json").objects
            if connections:
                break
        assert connections[0]["address"].startswith(HOST)
    assert served.ok("clients").out.startswith("CLIENT")


def test_one_client_is_shown(served: AdminShell) -> None:
    served.topic("shown", queues=1)
    with served.following("receive", "shown", "--group", "readers", "--follow"):
        found = []
        for _ in range(100):
            found = [row for row in served.ok("clients", "--json").objects if row["consumer_groups"] == ["readers"]]
            if found:
                break
        name = found[0]["client_id"]
        assert name in served.ok("clients", "list").out
        assert served.ok("clients", "list", "--protocol", "remoting", "--json").objects
        assert served.ok("clients", "--protocol", "grpc", "list", "--json").objects == []
        assert served.ok("clients", "--protocol", "grpc", "--json").objects == []
        assert served.ok("clients", "show", name, "--json").object["consumer_groups"] == ["readers"]
        text = served.ok("clients", "show", name).out
        assert [line.split() for line in text.splitlines() if line.startswith("consumer_groups")] == [
            ["consumer_groups", "readers"]
        ]
    assert "nobody@1" in served.refused("clients", "show", "nobody@1")


def test_unknown_topic_is_named_in_plain_words(served: AdminShell) -> None:
    assert served.refused("message", "show", "nope", "nope") == "there is no topic nope"


def test_unknown_command_names_the_nearest(served: AdminShell) -> None:
    assert served.run("topcs").err.strip().endswith("did you mean topics?")
    assert served.run("clients", "shw").err.strip().endswith("did you mean show?")
    assert "did you mean" not in served.run("zzzzzz").err


def test_top_prints_topics_and_groups_once(served: AdminShell) -> None:
    served.topic("busy", queues=1)
    served.ok("send", "busy", "x", "--count", "3")
    figures = served.ok("top", "--once", "--json").object
    assert figures["ready"] is True
    assert {"topics", "groups", "second", "clients"} <= figures.keys()
    assert figures["unanswered"] == []
    shown = served.ok("top", "--once").out
    heading, _, first, *_ = shown.splitlines()[2:]
    assert len(heading.rstrip()) == len(first.rstrip()), "figures end where their headings end"
    assert "ready" in shown
    assert " kB" in shown or " B" in shown
    assert "_" not in shown.partition("TOPIC")[0]


def test_dead_letters_are_listed_and_purged(served: AdminShell) -> None:
    served.ok("groups", "create", "failing")
    assert served.ok("dlq", "list", "failing", "--json").objects == []
    assert served.ok("dlq", "resend", "failing").out == "group failing has no dead letters\n"
    assert served.refused("dlq", "show", "failing", "some-id") == "group failing has no dead letter some-id"
    assert served.refused("dlq", "show", "no-group", "some-id") == "there is no consumer group no-group"
    assert served.ok("dlq", "resend", "failing", "--json").out == ""
    assert "give --yes" in served.refused("dlq", "purge", "failing", status=2)
    assert "there is no consumer group" in served.refused("dlq", "list", "missing")


async def _bury(address: str, topic: str, count: int) -> None:
    """Make dead letters of the group billing, which keeps no members."""
    async with Client(address) as client:
        await client.heartbeat({"billing": [topic]})
        await bury(client, topic, "billing", range(count))


def test_all_dead_letters_are_listed_and_resent_in_steps(served: AdminShell) -> None:
    topic = served.topic("fatal", queues=1)
    asyncio.run(_bury(served.endpoint, topic, 130))
    whole = served.ok("dlq", "list", "billing", "--limit", "500", "--json").objects
    assert [letter["message_id"] for letter in whole] == [message_id(number) for number in range(129, -1, -1)]
    first = served.run("dlq", "list", "billing", "--max", "2", "--json")
    assert first.objects == whole[:2]
    assert first.err.startswith("gantry: warning: there are older dead letters: --before ")
    cursor = first.err.split()[-1]
    assert served.ok("dlq", "list", "billing", "--before", cursor, "--max", "500", "--json").objects == whole[2:]
    question = "dead letters of group billing to it again? There is no terminal to ask: give --yes"
    for words, number in (
        (("--all",), "all 130"),
        (("--max", "3"), "3"),
        (("--max", "120"), "up to 120"),
        (("a", "b"), "2"),
        (("--all", "--before", cursor), "all"),
    ):
        assert served.refused("dlq", "resend", "billing", *words, status=2) == f"send {number} {question}"
    for words in (("--all",), ("--max", "32"), ("--before", cursor)):
        refused = served.refused("dlq", "resend", "billing", "an-id", *words, "--yes", status=2)
        assert refused == f"give ids or {words[0]}, not both"
    sent = served.ok("dlq", "resend", "billing", "--all", "--to", "retry", "--yes").out.splitlines()
    assert sent[0] == f"{message_id(129)} sent to %RETRY%billing"
    assert (len(sent), sent[-1]) == (131, "130 sent, 0 not sent")


def test_drain_is_begun_and_ended(served: AdminShell) -> None:
    assert "reconnect to other replicas? There is no terminal" in served.refused("drain", status=2)
    assert served.ok("top", "--once", "--json").object["draining"] is False
    assert "drains" in served.ok("drain", "--yes").out
    assert served.ok("top", "--once", "--json").object["draining"] is True
    assert "resumed" in served.ok("drain", "--undo").out


def test_wrong_addresses_are_explained(served: AdminShell) -> None:
    assert "is it an admin API" in served.refused("clients", "--admin", f"http://{served.endpoint}")
    assert "serves no TLS" in served.refused("clients", "--admin", served.admin.replace("http", "https"))
    assert "Connection refused" in served.refused("clients", "--admin", f"http://{HOST}:{free_port()}")
    assert "not the URL" in served.refused("clients", "--admin", "ftp://x", status=2)


def test_token_loses_space_around_it_and_is_never_printed(served: AdminShell) -> None:
    assert served.run("drain", "--undo", env={"GANTRY_ADMIN_TOKEN": f"{_TOKEN}\n"}).status == 0
    for token in ("secret\nvalue", "secret-é"):
        refused = served.run("clients", env={"GANTRY_ADMIN_TOKEN": token})
        assert (refused.status, "secret" in refused.err, refused.out) == (2, False, "")
        assert "the bearer token has a character" in refused.err


def test_an_empty_list_of_contexts_says_how_to_add_one(served: AdminShell, tmp_path: Path) -> None:
    bare = {"GANTRY_PROFILES": str(tmp_path / "profiles.toml")}
    listed = served.run("context", env=bare)
    assert listed.out == "no contexts; `gantry context add NAME --endpoint HOST:PORT` adds one\n"
    assert served.run("context", "--json", env=bare).out == ""


def test_context_is_used_and_its_file_is_private(served: AdminShell, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(_TOKEN)
    file = tmp_path / "folder" / "profiles.toml"
    bare = {"GANTRY_PROFILES": str(file), "GANTRY_ADMIN": "", "GANTRY_ADMIN_TOKEN": "", "GANTRY_ENDPOINT": ""}
    options = ("--endpoint", served.endpoint, "--admin", served.admin, "--token-file", token)
    added = served.run("context", "add", "here", *options, env=bare)
    assert (added.status, added.out) == (0, "context here saved, and current\n")
    second = served.run("context", "add", "there", "--endpoint", "192.0.2.1:8080", env=bare)
    assert (second.status, second.out) == (0, "context there saved\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed = served.run("context", "--json", env=bare).objects
    assert [(one["context"], one["current"]) for one in listed] == [("here", True), ("there", False)]
    # The admin API's write role comes from the context's token.
    assert served.run("drain", "--undo", env=bare).status == 0
    shown = served.run("context", "show", "here", env=bare).out
    assert _TOKEN not in shown
    assert served.run("context", "use", "there", env=bare).status == 0
    assert served.run("clients", "--profile", "here", env=bare).status == 0
    assert served.run("context", "remove", "there", env=bare).status == 0
    assert "there is no context" in served.run("context", "use", "there", env=bare).err
    refused = served.run("context", "add", "two words", "--endpoint", "192.0.2.1:8080", env=bare)
    assert (refused.status, "no spaces" in refused.err) == (2, True)


def test_variables_override_the_current_context(served: AdminShell, tmp_path: Path) -> None:
    env = {"GANTRY_PROFILES": str(tmp_path / "profiles.toml")}
    assert (
        served.run(
            "context", "add", "wrong", "--endpoint", f"{HOST}:1", "--admin", "http://127.0.0.1:1", env=env
        ).status
        == 0
    )
    assert served.run("topics", env=env).status == 0
    assert served.run("clients", env=env).status == 0


def test_a_broken_file_of_contexts_gives_the_same_error_everywhere(served: AdminShell, tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text("[here\n")
    errors = {
        served.run(*words, env={"GANTRY_PROFILES": str(file)}).err
        for words in (("context",), ("context", "use", "here"), ("topics",), ("clients",))
    }
    assert len(errors) == 1
    assert errors.pop().startswith(f"gantry: {file}: ")


def test_settings_are_checked_and_shown_without_a_start(shell: Shell, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    directory = tmp_path / "store"
    tables = f'[embedded]\ndirectory = "{directory}"\n[admin]\nread_token = "a-token-for-readers"\n'
    tables += '[traffic]\ndirectory = "s3://key:secret@bucket/traffic?region=x"\n'
    good.write_text(f'listen = "127.0.0.1:0"\n{tables}')
    bad.write_text('listen = "127.0.0.1:0"\n[embedded]\ndirectory = "x"\n[limits]\nmemory = "many"\n')
    assert "valid" in shell.ok("config", "check", "--config", good).out
    assert "valid" in shell.ok("config", "check", good).out
    assert not (tmp_path / "store").exists()
    shown = {row["key"]: row for row in shell.ok("config", "show", "--config", good, "--json").objects}
    assert shown["admin.read_token"]["value"] == "********"
    assert shown["traffic.directory"]["value"] == "s3://bucket/traffic"
    assert shown["embedded.directory"]["origin"] == "file"
    shown_text = shell.ok("config", "show", "--config", good).out
    assert '[{"address":"127.0.0.1:0"}]' in shown_text, "the defaults of a listener are left out"
    assert "limits.memory" in shell.refused("config", "check", "--config", bad, status=2)
    assert "limits.memory" in shell.refused("config", "check", bad, status=2)
    assert "not both" in shell.refused("config", "check", good, "--config", good, status=2)


def test_a_check_of_settings_names_every_mistake(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('lisen = "127.0.0.1:0"\n[limits]\nmemory = "many"\n')
    lines = shell.run("config", "check", file).err.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [["gantry", "limits.memory"], ["gantry", "lisen"]]


def test_a_check_of_settings_names_every_file_that_cannot_be_used(shell: Shell, tmp_path: Path) -> None:
    rules, tokens, file = tmp_path / "rules.toml", tmp_path / "tokens", tmp_path / "gantry.toml"
    rules.write_text("[[rule]]\n")
    tokens.touch(0o600)
    tokens.write_text("read short\n")
    present = f"""
        listen = "127.0.0.1:0"
        embedded.directory = "{tmp_path / "store"}"
        admin.tokens = "{tokens}"
        rules.file = "{rules}"
    """
    absent = f"""
        tls.certificate = "{tmp_path / "none.pem"}"
        tls.key = "{tmp_path / "none.pem"}"
        admin.descriptors = ["{tmp_path / "none.pb"}"]
        auth.users = "{tmp_path / "users.toml"}"
        auth.plain_acl = "{tmp_path / "plain_acl.yml"}"
    """
    file.write_text(present + absent)
    checked = shell.run("config", "check", file)
    assert (checked.status, checked.out) == (2, "")
    lines = checked.err.splitlines()
    keys = [line.removeprefix("gantry: ").partition(":")[0] for line in lines]
    assert keys == ["tls", "admin.tokens", "admin.descriptors", "auth.users", "auth.plain_acl", "rules.file"]
    assert "short" not in checked.err
    rules.write_text("")
    tokens.write_text("read dashboard a-token-of-a-reader\n")
    file.write_text(present)
    assert "valid" in shell.ok("config", "check", file).out


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_scripts_name_every_command(shell: Shell, name: str) -> None:
    script = shell.ok("completion", name).out
    for word in ("topics", "resend", "context"):
        assert word in script
    assert ("-l follow" if name == "fish" else "--follow") in script


def test_bash_completes_actions_and_options(shell: Shell, tmp_path: Path) -> None:
    script = shell.ok("completion", "bash").out
    for words, expected in (
        (["gantry", "topics", "cr"], ["create"]),
        (["gantry", "dlq", "purge", "--y"], ["--yes"]),
        (["gantry", "receive", "orders", "--a"], ["--ack", "--access-key"]),
        (["gantry", "groups", "update", "--no"], ["--no-fifo", "--no-enabled"]),
        (["gantry", "groups", "update", "--f"], ["--fifo"]),
    ):
        array = " ".join(words)
        code = f'{script}\nCOMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _gantry; echo "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == expected


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("top", "--interval", "0"), "argument --interval: not a duration above zero: '0'"),
        (("clients", "--timeout", "0s"), "argument --timeout: not a duration above zero: '0s'"),
        (("topics", "--timeout", "0"), "argument --timeout: not a duration above zero: '0'"),
        (("bench", "send", "t", "--duration", "0s"), "argument --duration: not a duration above zero: '0s'"),
        (("connections", "--sort", "size"), "argument --sort: invalid choice: 'size' (choose from 'age', '-age', "),
        (
            ("message", "list", "t", "--filter", "a", "--sql", "b = 1"),
            "argument --sql: not allowed with argument --filter",
        ),
    ],
)
def test_wrong_values_name_their_option(served: AdminShell, words: tuple[str, ...], complaint: str) -> None:
    done = served.run(*words)
    assert (done.status, done.out) == (2, "")
    assert f"error: {complaint}" in done.err
