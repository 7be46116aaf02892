"""Supervisor and workers as processes."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from proxy.workers.supervisor import _search_path
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RequestTimeout
from tests.attacks.good_client import send_fields
from tests.cluster.client import Client
from tests.cluster.servers import START_TIMEOUT
from tests.ports import HOST, free_port
from tests.proxy.workers.processes import ROOT, Process, words, workers


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path, 2)
    family = workers(process).values()
    try:
        yield process
    finally:
        process.process.kill()
        process.process.wait()
        # Workers end by themselves after their supervisor; a failing test must not wait for that.
        for pid in family:
            if "--worker" in words(pid):
                os.kill(pid, signal.SIGKILL)


def ended(pids: Iterable[int]) -> bool:
    """Return whether all of these worker processes have ended."""
    return not any("--worker" in words(pid) for pid in pids)


def served(process: Process) -> Callable[[], bool]:
    return lambda: process.sum("gantry_workers", state="serving") == 2


def test_worker_that_dies_is_restarted_and_no_counter_decreases(process: Process) -> None:
    process.gantry("topics", "create", "orders")
    for _ in range(10):
        process.send("orders")
    process.wait(lambda: process.sum("rocketmq_messages_in_total", topic="orders") == 10)
    before = workers(process)
    assert before.keys() == {0, 1}
    # Worker 0 has the broker.
    os.kill(before[1], signal.SIGKILL)
    process.wait(lambda: process.sum("gantry_worker_exits_total", status="SIGKILL") == 1)
    assert process.sum("rocketmq_messages_in_total", topic="orders") == 10
    process.wait(served(process))
    after = workers(process)
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert "worker 1 ended with SIGKILL and is restarted in 0.5 s" in process.log.read_text()
    for _ in range(6):
        process.send("orders")
    process.wait(lambda: process.sum("rocketmq_messages_in_total", topic="orders") == 16)
    # SIGHUP does not end a replica.
    process.process.send_signal(signal.SIGHUP)
    process.send("orders")
    # Merged over both workers.
    assert process.sum("rocketmq_proxy_up") == 2
    assert process.sum("gantry_event_loop_lag_seconds_count") > 0
    process.end()
    assert ended(after.values())


@pytest.mark.anyio
async def test_worker_that_hangs_is_replaced_while_the_other_serves(tmp_path: Path) -> None:
    process = await asyncio.to_thread(Process, tmp_path, 2, more={"GANTRY_WORKER_TIMEOUT": "10"})
    family = workers(process)
    try:
        await asyncio.to_thread(process.gantry, "topics", "create", "orders")
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client(f"{HOST}:{process.port}", f"c{n}")) for n in range(16)]
            # Worker 0 has the broker.
            os.kill(family[1], signal.SIGSTOP)
            results = await asyncio.gather(*map(_sends, clients))
            served = [client for client, sent in zip(clients, results, strict=True) if sent]
            assert served
            await asyncio.to_thread(process.wait, lambda: process.sum("gantry_workers", state="unresponsive") == 1)
            assert process.sum("gantry_workers", state="serving") == 1
            await asyncio.to_thread(process.wait, lambda: process.sum("gantry_workers", state="serving") == 2)
            assert all(await asyncio.gather(*map(_sends, served)))
        assert process.sum("gantry_worker_exits_total", status="unresponsive") == 1
        assert workers(process)[0] == family[0]
        assert "worker 1 has not answered for " in process.log.read_text()
        await asyncio.to_thread(process.end)
    finally:
        process.process.kill()
        process.process.wait()
        for pid in family.values():
            if "--worker" in words(pid):
                os.kill(pid, signal.SIGKILL)


async def _sends(client: Client) -> bool:
    """Return whether a message is stored within five seconds."""
    try:
        reply = await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"m", timeout=5)
    except RequestTimeout:
        return False
    return reply.code == ResponseCode.SUCCESS


def test_workers_end_when_their_supervisor_has_ended(process: Process) -> None:
    children = workers(process)
    process.process.kill()
    process.process.wait()
    deadline = time.monotonic() + 30
    while not ended(children.values()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert process.log.read_text().count("the supervisor has ended") == 2


@pytest.mark.parametrize("reason", ["taken", "refused"])
def test_address_that_cannot_be_served_ends_the_program(tmp_path: Path, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        if reason == "taken":
            address, status, text = f"127.0.0.1:{port}", 1, f"cannot listen on 127.0.0.1:{port}: Address already in use"
        else:
            address, status, text = "unix:/nowhere", 2, "gantry: listen: unix:/nowhere cannot be shared by 2 workers"
        options = ["--workers", "2", "--namesrv", "127.0.0.1:1", "--listen", address]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GANTRY_")}
        command = [sys.executable, "-m", "proxy", "serve", *options]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == status
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_first_worker_that_cannot_start_is_not_restarted(tmp_path: Path) -> None:
    """All workers would fail for the same reason."""
    (tmp_path / "store").write_text("a file, no directory")
    options = ["--workers", "2", "--listen", f"127.0.0.1:{free_port()}", "--embedded", str(tmp_path / "store")]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GANTRY_")}
    command = [sys.executable, "-m", "proxy", "serve", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 1
    assert "worker 0 ended with 1 before any worker was ready" in done.stderr


def request_json(port: int, path: str, body: bytes | None = None) -> Any:
    """Return the JSON reply of a worker's admin API."""
    request = Request(f"http://127.0.0.1:{port}{path}", body, {"content-type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_each_worker_reports_its_own_configuration_and_no_changes(tmp_path: Path) -> None:
    first = free_port(2)
    process = Process(tmp_path, 2, f"127.0.0.1:{first}")
    try:
        for number in range(2):
            port = first + number
            values = {item["key"]: item["value"] for item in request_json(port, f"/v1/config?worker={number}")["items"]}
            assert values["admin.listen"] == f"127.0.0.1:{port}"
            assert request_json(port, f"/v1/config/reload?worker={number}", b"{}") == {"dry_run": False, "changes": []}
        process.end()
    finally:
        process.process.kill()
        process.process.wait()


_CONSOLE_SCRIPT = "import sys; sys.argv[0] = 'gantry'; from proxy.__main__ import main; sys.exit(main())"


def test_workers_do_not_import_from_the_current_directory(tmp_path: Path) -> None:
    """As the installed command, which does not search it either."""
    (tmp_path / "proxy.py").write_text("raise SystemExit('a file of the current directory')")
    words = ["--listen", f"127.0.0.1:{free_port()}", "--embedded", str(tmp_path / "store"), "--admin", "off"]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CONSOLE_SCRIPT, "serve", "--workers", "2", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=output,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while log.read_text().count("gantry: ready") < 2:
            assert time.monotonic() < deadline, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        process.terminate()
        assert process.wait(45) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("first", "inherited", "expected"),
    [
        (str(ROOT), None, str(ROOT)),
        (str(ROOT), "/a", f"{ROOT}{os.pathsep}/a"),
        (str(ROOT), f"/a{os.pathsep}{ROOT}", None),
        ("/usr/bin", None, None),
    ],
)
def test_workers_search_the_source_checkout_only_if_their_parent_does(
    monkeypatch: pytest.MonkeyPatch, first: str, inherited: str | None, expected: str | None
) -> None:
    monkeypatch.setattr(sys, "path", [first, *sys.path])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if inherited is not None:
        monkeypatch.setenv("PYTHONPATH", inherited)
    assert _search_path().get("PYTHONPATH") == expected
