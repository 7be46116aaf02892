"""The list of compiled modules, and the compiled modules of this tree, if there are any."""

import ast
import importlib
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from hatch_build import ROOT, compiled, sources
from proxy.core.build import build_kind


@pytest.mark.parametrize("path", sources())
def test_listed_module_exists(path: str) -> None:
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("path", sources())
def test_no_exception_is_being_handled_where_a_compiled_coroutine_waits(path: str) -> None:
    """A compiled coroutine that is suspended within `except` or `finally` leaves its exception to the whole thread."""
    waits = []
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.AsyncFor | ast.AsyncWith):
            waits.append(node.lineno)
        elif isinstance(node, ast.Try):
            handling = [*node.finalbody, *(statement for handler in node.handlers for statement in handler.body)]
            waits += [
                inner.lineno
                for statement in handling
                for inner in ast.walk(statement)
                if isinstance(inner, ast.Await | ast.Yield | ast.YieldFrom)
            ]
    assert waits == [], "lines to move to a module that is not compiled"


def test_all_listed_modules_are_of_one_kind() -> None:
    """A part of the modules would be the rest of an interrupted compilation."""
    files = [
        importlib.import_module(path[:-3].replace("/", ".").removesuffix(".__init__")).__file__ for path in sources()
    ]
    kinds = {"compiled" if str(file).endswith(tuple(EXTENSION_SUFFIXES)) else "pure" for file in files}
    assert kinds == {build_kind()}


def test_compiled_modules_are_not_older_than_their_sources() -> None:
    newest = max((ROOT / path).stat().st_mtime for path in sources())
    assert all(path.stat().st_mtime >= newest for path in compiled()), "run `make compile` or `make pure`"
