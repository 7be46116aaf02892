"""The repeated work of a replica: none of it ends the replica by its failure."""

import ast
import importlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.settings.model import Settings
from remoting import tasks
from tests.ports import free_port
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.replica import Client, ask_route, certify, running
from tests.waiting import until

pytestmark = pytest.mark.anyio

_ALWAYS = {
    "activity of traffic rules",
    "certificate of the Admin gRPC service",
    "certificate of the admin API",
    "certificates",
    "expiry of gRPC clients",
    "expiry of remoting clients",
    "gRPC health",
    "metadata of topics",
    "overload",
    "renewals",
    "survey of consumer groups",
    "trace records",
    "traffic history",
    "traffic rules",
}
_SHARED = {"announcements", "announcements of all members", "renewals to other replicas"}
_TOPICS = {"queues of the topic GantryRenewals", "queues of the topic DefaultHeartBeatSyncerTopic"}
_CLUSTER = {"brokers and routes", "brokers that hang", "connections to brokers"}
_EMBEDDED = {"routines of the broker", "upkeep of the store", "idle connections of other workers"}
_AUTH = {"changes of users and policies", "audit log to a topic"}


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Let all repeated work fail at short intervals; return the number of its runs by name."""
    # These are loaded when they are needed.
    for name in ("proxy.admin.grpc.server", "proxy.admin.http.server"):
        importlib.import_module(name)
    every = tasks.every
    runs: dict[str, int] = {}

    async def failing(
        seconds: float | Callable[[], float], work: Callable[[], Awaitable[object] | None], *, name: str, **_: Any
    ) -> None:
        runs[name] = 0

        def fail() -> None:
            runs[name] += 1
            raise ValueError(f"a mistake in {name}")

        await every(0.01, fail, name=name)

    for module in list(sys.modules.values()):
        if module is not tasks and vars(module).get("every") is every:
            monkeypatch.setattr(module, "every", failing)
    return runs


def more(folder: Path) -> dict[str, Any]:
    """Return settings with which all optional parts run."""
    files, _ = certify(folder)
    rules, token = folder / "rules.toml", folder / "token"
    rules.write_text("")
    token.write_text("read reader a-token-of-many-characters\n")
    token.chmod(0o600)
    addresses = {"listen": f"127.0.0.1:{free_port()}", "grpc": f"127.0.0.1:{free_port()}"}
    return {
        "rules": {"file": rules},
        "grpc": {"message_trace": True},
        "admin": {**addresses, **files, "tokens": token},
    }


async def all_fail_twice(failures: dict[str, int], names: set[str], log: pytest.LogCaptureFixture) -> None:
    await until(lambda: failures.keys() >= names and all(runs > 1 for runs in failures.values()))
    assert set(failures) == names
    assert all(f"the background task {name!r} failed" in log.text for name in names)
    assert all(f"a mistake in {name}" in log.text for name in names)


async def test_repeated_work_before_a_cluster_survives_failures(
    cluster: Cluster, tmp_path: Path, failures: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    address = (await cluster.name_server()).address
    settings = Settings(listen=["127.0.0.1:0"], cluster={"namesrv": address}, drain_timeout=0.2, **more(tmp_path))
    # Its end would raise the error of a task that has ended.
    async with running(settings) as app:
        await all_fail_twice(failures, _ALWAYS | _CLUSTER | _SHARED | _TOPICS, caplog)
        client = await Client.connect(app)
        await client.ask(ask_route())
        await client.close()


async def test_repeated_work_of_an_embedded_broker_survives_failures(
    tmp_path: Path, failures: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    users = tmp_path / "users.toml"
    users.write_text("")
    users.chmod(0o600)
    settings = Settings(
        listen=["127.0.0.1:0"],
        embedded={"directory": tmp_path / "broker"},
        workers=2,
        sync={"enabled": False},
        auth={"users": users, "audit_topic": "audit"},
        drain_timeout=0.2,
        **more(tmp_path),
    )
    async with running(settings) as app:
        await all_fail_twice(failures, _ALWAYS | _EMBEDDED | _AUTH, caplog)
        await (await Client.connect(app)).close()


async def test_no_task_of_a_replica_repeats_work_by_itself() -> None:
    """A loop of its own would end the replica by an unexpected error."""
    root = Path(tasks.__file__).parents[1]
    # The errors of the first two are for the callers that await them; the last one catches its own.
    others = {"proxy/tools", "proxy/auth/stores/file_lock.py", "proxy/replication/sync_topic.py"}
    loops = {
        str(path.relative_to(root))
        for path in sorted((root / "proxy").rglob("*.py"))
        for loop in ast.walk(ast.parse(path.read_text()))
        if _is_endless(loop) and any(_is_sleep(node) for node in ast.walk(loop))
    }
    assert {path for path in loops if not any(path.startswith(other) for other in others)} == set()
    assert {other for other in others if not any(path.startswith(other) for path in loops)} == set(), "is outdated"


def _is_endless(node: ast.AST) -> bool:
    return isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)


def _is_sleep(node: ast.AST) -> bool:
    """Return whether a node is a call of a function `sleep` that is awaited."""
    call = node.value if isinstance(node, ast.Await) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "sleep"
