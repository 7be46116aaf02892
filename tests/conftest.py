import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.cluster.backends import embedded_backend
from tests.groups import group
from tests.paths import ROOT

# No deadline and no `too_slow` check: both measure a busy machine as much as the test.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", settings.get_profile("default"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Run coroutine tests on asyncio: the connections are asyncio protocols."""
    return "asyncio", {"use_uvloop": False}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests, longest groups first; give tests before real servers a second try.

    Runs before pytest-xdist reads the groups. Real servers have clocks and pauses of their own; the terminal summary
    shows every first failure.
    """
    groups = {item: group(item.path.relative_to(ROOT), embedded_backend(item)) for item in items}
    for item, its_group in groups.items():
        item.add_marker(pytest.mark.xdist_group(its_group.name))
        if its_group.external:
            item.add_marker(pytest.mark.external)
        if item.get_closest_marker("cluster") and "embedded" not in item.path.parts:
            item.add_marker(pytest.mark.flaky(reruns=1))
    items.sort(key=lambda item: groups[item].rank)


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
