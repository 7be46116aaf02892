"""A failing test is shown with the logs of the replicas that run."""

from collections.abc import Generator

import pytest

from tests.cluster.kit import Gantry


@pytest.hookimpl(wrapper=True)
def add_logs(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The hook pytest_runtest_makereport."""
    report = yield
    if report.failed:
        report.sections += [(f"log of gantry at {gantry.address}", gantry.tail()) for gantry in Gantry.running]
    return report
