"""Additions to test reports: the replicas' logs of a failed test, and measured figures."""

from collections.abc import Generator

import pytest

from tests.cluster.servers import Gantry


@pytest.hookimpl(wrapper=True)
def add_logs(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The hook pytest_runtest_makereport."""
    report = yield
    if report.failed:
        report.sections += [(f"log of gantry at {gantry.address}", gantry.tail()) for gantry in Gantry.running]
    return report


_figures: list[str] = []


def figure(text: str) -> None:
    """Show a measured figure at the end of the run."""
    _figures.append(text)


def show_figures(terminalreporter: pytest.TerminalReporter) -> None:
    """The hook pytest_terminal_summary."""
    if _figures:
        terminalreporter.section("measured")
        for text in _figures:
            terminalreporter.line(text)
        # Each directory's conftest may have the hook.
        _figures.clear()
