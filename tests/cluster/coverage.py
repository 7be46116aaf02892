"""The scenarios of each request code, rpc and telemetry command, and a record of what they really send.

Names are request codes, rpcs (`SendMessage`) and telemetry commands in both directions (`Telemetry.settings`).
`test_table.py` checks that no name is without a scenario. The hooks of `conftest.py` fail a scenario that does not send
through Gantry what it covers, or, for a push, does not receive it from there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from remoting.codes import RequestCode

_Test = TypeVar("_Test", bound=Callable[..., Any])

SCENARIOS: defaultdict[int | str, list[str]] = defaultdict(list)
# Addresses of all replicas; traffic with other servers, such as the broker itself, proves nothing.
_proxies: set[str] = set()
_seen: set[int | str] = set()


def covers(*names: RequestCode | str, parameter: str = "") -> Callable[[_Test], _Test]:
    """Mark a scenario that sends these through Gantry and checks their effects.

    parameter: name of the test's parameter whose values it covers as well.
    """

    def note(test: _Test) -> _Test:
        marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
        values = [value for mark in marks if mark.args[:1] == (parameter,) for value in mark.args[1]]
        for name in (*names, *values):
            SCENARIOS[name].append(test.__name__)
        vars(test)["covered"] = (names, parameter)
        return test

    return note


def add_proxy(address: str) -> None:
    """Count traffic with this address (host:port) from now on."""
    _proxies.add(address)


def saw(address: str, name: int | str) -> None:
    """Record a request to, or a push from, the server at this address."""
    if address in _proxies:
        _seen.add(name)


def forget() -> None:
    """Forget the traffic of former tests."""
    _seen.clear()


def missing(test: pytest.Function) -> Iterator[str]:
    """Return the names that the test covers, and that did not pass a replica."""
    names, parameter = getattr(test.function, "covered", ((), ""))
    if parameter:
        names = (*names, test.callspec.params[parameter])
    return (name if isinstance(name, str) else RequestCode(name).name for name in names if name not in _seen)
