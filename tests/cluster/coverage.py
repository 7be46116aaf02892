"""Which test walks which request code; `test_table.py` sees to it that none is left out."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

from remoting.codes import RequestCode

_Test = TypeVar("_Test", bound=Callable[..., Any])

SCENARIOS: defaultdict[int, list[str]] = defaultdict(list)


def covers(*codes: RequestCode) -> Callable[[_Test], _Test]:
    """This test sends these codes through Gantry and checks what becomes of them."""

    def note(test: _Test) -> _Test:
        for code in codes:
            SCENARIOS[code].append(test.__name__)
        return test

    return note
