"""Scenarios of the rows of the request table."""

from remoting.requests import REQUESTS
from tests.cluster import test_groups, test_pop, test_pull, test_send, test_tools, test_transactions
from tests.cluster.coverage import SCENARIOS

_SCENARIO_MODULES = (test_groups, test_pop, test_pull, test_send, test_tools, test_transactions)


def test_every_request_code_has_a_scenario() -> None:
    walked = {name for module in _SCENARIO_MODULES for name in vars(module)}
    tests = {code: [name for name in names if name in walked] for code, names in SCENARIOS.items()}
    assert {code for code, names in tests.items() if names} == set(REQUESTS)
