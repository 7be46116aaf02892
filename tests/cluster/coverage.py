"""The scenarios of each request code; `test_table.py` checks that none is missing."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

from remoting.codes import RequestCode

_Test = TypeVar("_Test", bound=Callable[..., Any])

SCENARIOS: defaultdict[int, list[str]] = defaultdict(list)


def covers(*codes: RequestCode) -> Callable[[_Test], _Test]:
    """Mark a scenario that sends these codes through Gantry and checks their effects."""

    def note(test: _Test) -> _Test:
        for code in codes:
            SCENARIOS[code].append(test.__name__)
        return test

    return note
