import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure: neither a deadline nor `too_slow`, which measure the machine as much as the test.
# `make fuzz` takes the profile "fuzz".
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", settings.get_profile("default"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Coroutine tests run on asyncio only: the connections are asyncio protocols."""
    return "asyncio", {"use_uvloop": False}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real servers have clocks and pauses of their own: before them a test may fail once, which is told at the end."""
    for item in items:
        if item.get_closest_marker("cluster") and "embedded" not in item.path.parts:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What failed once, whole: it is to be looked into as a failure is."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"failed once: {report.nodeid}")
        terminalreporter.line(report.longreprtext)
        for name, text in report.sections:
            terminalreporter.section(name, "-")
            terminalreporter.line(text)
