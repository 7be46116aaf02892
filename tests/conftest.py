import os
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.groups import SLOW, group

# gRPC's handlers of fork() can crash a child process before it runs its program, if other threads use gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Programs started in the background of a script ignore Ctrl-C, and so do those that they start. Tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline and no `too_slow` check: both measure a busy machine as much as the test.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", settings.get_profile("default"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Run coroutine tests on asyncio: the connections are asyncio protocols."""
    return "asyncio", {"use_uvloop": False}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that need external programs; give tests before real servers and attacks two tries.

    Real servers have clocks and pauses of their own, and attacks measure stalls, to which other tests add. The terminal
    summary shows every first failure. `make attacks` runs alone and gives one try.
    """
    if group(item.nodeid).external:
        item.add_marker(pytest.mark.external)
    if item.nodeid.startswith(SLOW):
        item.add_marker(pytest.mark.slow)
    real_servers = item.get_closest_marker("cluster") and "embedded" not in item.path.parts
    attack = item.nodeid.startswith("tests/attacks/") and "ATTACKS_COMPLETE" not in os.environ
    if real_servers or attack:
        item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest groups."""
    items.sort(key=lambda item: group(item.nodeid).rank)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Runs the tests of a group in one process, one after another."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid).name


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Return the scheduler for pytest-xdist."""
    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in captured output: pytest-xdist sends reports as UTF-8."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show tests that failed once in full: they need the same attention as failures."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"failed once: {report.nodeid}")
        terminalreporter.line(report.longreprtext)
        for name, text in report.sections:
            terminalreporter.section(name, "-")
            terminalreporter.line(text)
