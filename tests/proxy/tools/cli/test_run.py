"""Behaviour common to all commands."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from threading import Thread

import pytest
import trustme

from proxy.core.build import build_kind
from proxy.tools.cli.command_parser import command_first
from tests.cluster.servers import HOST, ROOT, Gantry
from tests.ports import free_port
from tests.proxy.tools.cli.shell import LIMIT, Shell, embedded, environment

_ESCAPE = "\x1b["


@pytest.mark.parametrize(
    "words",
    [
        ("send", "t", "x"),
        ("receive", "t", "--group", "g"),
        ("tail", "t"),
        ("topics",),
        ("groups",),
        ("export", "-o", "/tmp/never.jsonl"),
    ],
    ids=lambda words: words[0],
)
def test_closed_port_is_one_sentence(words: tuple[str, ...]) -> None:
    endpoint = f"{HOST}:{free_port()}"
    assert Shell(endpoint).refused(*words) == f"cannot connect to {endpoint}: Connection refused"


@pytest.mark.parametrize(
    "words",
    [
        ("--endpoint", "{}", "topics"),
        ("--endpoint={}", "--json", "groups", "list"),
    ],
)
def test_options_may_stand_before_the_command(words: tuple[str, ...]) -> None:
    endpoint = f"{HOST}:{free_port()}"
    refused = Shell("192.0.2.1:1").refused(*(word.format(endpoint) for word in words))
    assert refused == f"cannot connect to {endpoint}: Connection refused"


def test_an_options_value_may_be_the_name_of_a_command() -> None:
    words = ["--access-key", "send", "--json", "topics", "list"]
    assert command_first(words, {"send", "topics"}) == ["topics", "--access-key", "send", "--json", "list"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--endpoint",), "the following arguments are required: command"),
        (("--bogus", "topics"), "unrecognized arguments: --bogus"),
        (("--json", "topcs"), "did you mean topics?"),
        (("send", "orders", "--bogus", "body"), "usage: gantry send "),
        (("topics", "show", "orders", "--bogus"), "usage: gantry topics show "),
    ],
)
def test_invalid_options_are_refused_with_the_usage_of_their_command(words: tuple[str, ...], complaint: str) -> None:
    done = Shell("192.0.2.1:1").run(*words)
    assert (done.status, done.out) == (2, "")
    assert complaint in done.err


def test_silent_server_is_one_sentence() -> None:
    with socket.create_server((HOST, 0)) as silent:
        endpoint = f"{HOST}:{silent.getsockname()[1]}"
        told = Shell(endpoint).refused("topics", "--timeout", "1s")
    assert told == f"{endpoint} did not answer GET_ROUTEINFO_BY_TOPIC within 1 s"


def test_http_server_is_named() -> None:
    with socket.create_server((HOST, 0)) as server:
        Thread(target=_refuse_as_http, args=(server,), daemon=True).start()
        endpoint = f"{HOST}:{server.getsockname()[1]}"
        refusal = Shell(endpoint).refused("topics", "--timeout", "5s")
    assert refusal == f"{endpoint} speaks HTTP, not RocketMQ's protocol; is it the address of the admin API?"


def _refuse_as_http(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")


def test_a_self_signed_certificate_is_named(shell: Shell) -> None:
    assert shell.refused("topics", "--tls").endswith("(self-signed certificate); see --ca and --insecure")


def test_tls_at_a_plain_port_is_named() -> None:
    with socket.create_server((HOST, 0)) as server:
        Thread(target=_close, args=(server,), daemon=True).start()
        endpoint = f"{HOST}:{server.getsockname()[1]}"
        refusal = Shell(endpoint).refused("topics", "--tls")
    assert refusal.startswith(f"cannot connect to {endpoint}: ")
    assert refusal.endswith("if it serves no TLS, leave out --tls")


def _close(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(4096)


def test_version_is_printed() -> None:
    done = subprocess.run([sys.executable, "-m", "proxy", "--version"], capture_output=True, cwd=ROOT, text=True)
    assert (done.returncode, done.stdout) == (0, f"gantry {version('rocketmq-gantry')} ({build_kind()})\n")


def test_endpoint_flag_overrides_the_environment(shell: Shell) -> None:
    assert Shell("127.0.0.1:1").run("topics", "--endpoint", shell.endpoint).status == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("topics", "--endpoint", "nowhere"), "not an endpoint: 'nowhere'; write HOST:PORT"),
        (("topics", "--endpoint", ":8080"), "not an endpoint: ':8080'; write HOST:PORT"),
        (("context", "add", "far", "--endpoint", "nowhere"), "not an endpoint: 'nowhere'; write HOST:PORT"),
        (("topics", "create", "other-\udcff"), "not UTF-8: 'other-\\udcff'"),
        (("topics", "--ca", "/no/such/file"), "/no/such/file holds no certificates that can be read: "),
    ],
)
def test_invalid_endpoint_is_refused(shell: Shell, words: tuple[str, ...], sentence: str) -> None:
    assert shell.refused(*words, status=2).startswith(sentence)


def test_unknown_arguments_are_refused(shell: Shell) -> None:
    for words in (("send", "t", "--delay", "soon", "x"), ("tail",), ("topics", "--bogus"), ("bogus",)):
        done = shell.run(*words)
        assert (done.status, done.out) == (2, "")
        assert "usage: gantry" in done.err


def test_colour_only_on_a_terminal_without_no_color(shell: Shell) -> None:
    shell.topic("colours")
    assert _ESCAPE not in shell.ok("topics").out
    assert _ESCAPE in shell.on_terminal("topics").out
    plain = shell.on_terminal("topics", env={"NO_COLOR": "1"}).out
    # Bold is not a colour.
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain)
    assert "colours" in plain


def test_closed_pipe_ends_quietly(shell: Shell) -> None:
    topic = shell.topic("broken-pipe")
    shell.ok("send", topic, "--size", 2000, "--count", 2000)
    command = [sys.executable, "-m", "proxy", "tail", topic, "--from", "earliest"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=ROOT, env=environment(shell.endpoint)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert (process.wait(LIMIT), process.stderr.read()) == (0, b"")


@pytest.mark.parametrize("command", ["doctor 127.0.0.1:1", "serve --help", "--version"])
def test_any_command_ends_quietly_at_a_closed_pipe_and_in_plain_words_at_a_full_disk(command: str) -> None:
    piped = _in_bash(f"{sys.executable} -m proxy {command} | true")
    assert piped.stderr == ""
    full = _in_bash(f"{sys.executable} -m proxy {command} > /dev/full")
    # argparse ignores errors of its help.
    assert full.stderr in ("gantry: standard output: No space left on device\n", "")
    assert full.returncode == bool(full.stderr)


def test_a_full_disk_is_not_of_the_server(shell: Shell) -> None:
    for output, place in (("> /dev/full", "standard output"), ("--topics SELF_TEST_TOPIC -o /dev/full", "/dev/full")):
        command = "topics" if output.startswith(">") else "export"
        full = _in_bash(f"{sys.executable} -m proxy {command} --endpoint {shell.endpoint} {output}")
        assert (full.returncode, full.stderr) == (1, f"gantry: {place}: No space left on device\n")
    completion = _in_bash(f"{sys.executable} -m proxy completion bash > /dev/full")
    assert completion.stderr == "gantry: standard output: No space left on device\n"


@pytest.mark.parametrize("command", ["doctor 127.0.0.1:1", "serve --help"])
def test_any_command_escapes_characters_that_the_terminal_lacks(command: str) -> None:
    done = _in_bash(f"{sys.executable} -m proxy {command}", {"PYTHONIOENCODING": "ascii"})
    assert (bool(done.stdout), done.stderr) == (True, "")


def _in_bash(command: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    variables = environment("127.0.0.1:1", env)
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, cwd=ROOT, env=variables, text=True, timeout=LIMIT, check=False
    )


def test_commands_and_server_import_only_their_own_modules() -> None:
    program = (
        "import sys; from proxy.__main__ import main\n"
        "try: main(['topics', '--help'])\n"
        "except SystemExit: print(sorted({'proxy.app', 'proxy.settings.model', 'rich'} & set(sys.modules)))\n"
        "import proxy.app\n"
        "print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=ROOT, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["[]", "False"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, Path]]:
    """Run a server with TLS only and read-only tools; yield it with the file of its CA."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", HOST)
    issued.private_key_pem.write_to_path(str(directory / "key.pem"))
    (directory / "key.pem").chmod(0o600)
    with (directory / "cert.pem").open("wb") as file:
        file.writelines(blob.bytes() for blob in issued.cert_chain_pems)
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    config = 'tools = "read"\n' + embedded(directory / "data")
    config += f'[tls]\nmode = "enforcing"\ncertificate = "{directory}/cert.pem"\nkey = "{directory}/key.pem"\n'
    with Gantry(directory, "", config) as gantry:
        yield Shell(gantry.address), directory / "ca.pem"


def test_tls_with_a_private_ca(secured: tuple[Shell, Path]) -> None:
    shell, authority = secured
    assert "SELF_TEST_TOPIC" in shell.ok("topics", "--all", "--ca", authority).out
    assert "SELF_TEST_TOPIC" in shell.ok("topics", "--all", "--insecure").out
    told = shell.refused("topics", "--tls")
    assert told.startswith(f"the certificate of {shell.endpoint} is not trusted (")
    assert told.endswith("see --ca and --insecure")
    assert shell.refused("topics") == f"{shell.endpoint} closed the connection; does it want TLS (--tls)?"


def test_read_only_tools_refuse_writes(secured: tuple[Shell, Path]) -> None:
    shell, _ = secured
    told = shell.refused("topics", "create", "forbidden", "--insecure")
    assert told == "UPDATE_AND_CREATE_TOPIC is not permitted here: the setting `tools` is 'read'"
