"""The contract on the embedded broker; `python -m tests.proxy.embedded.contract.run` has the real cluster besides."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.proxy.embedded.contract.run import EMBEDDED, Found, report, run

pytestmark = [pytest.mark.external, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Future[Found]]]:
    """What comes of each slice; they wait more than they work, so they run side by side."""
    with ThreadPoolExecutor(len(EMBEDDED)) as pool:
        yield {name: pool.submit(run, part) for name, part in EMBEDDED.items()}


@pytest.mark.parametrize("name", EMBEDDED)
def test_scenarios_of_the_real_cluster_hold(found: dict[str, Future[Found]], name: str) -> None:
    slice_ = found[name].result()
    assert not slice_.failures, slice_.output
    assert slice_.outcomes, slice_.output


def test_a_scenario_must_pass_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        Found("cluster", {("test_a", "one"): "", ("test_a", "two"): "", ("grpc.test_b", "three"): ""}),
        Found("socket", {("test_a", "one"): "", ("test_a", "two"): "assert 0", ("grpc.test_b", "three"): ""}),
        Found("in-process", {("test_a", "two"): ""}),
    ]
    assert report(results, ("cluster", "in-process", "socket")) == 1
    assert capsys.readouterr().out.splitlines() == [
        "FAIL test_a::one  in-process: was not run",
        "FAIL test_a::two  socket: assert 0",
        "1 passed, 2 failed",
    ]
    assert report(results, ("cluster",)) == 0
    assert report([], ("cluster",)) == 1
