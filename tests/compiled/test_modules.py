"""The list of compiled modules, and the compiled modules of this tree, if there are any."""

import importlib
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from hatch_build import ROOT, compiled, sources
from proxy.core.build import build_kind


@pytest.mark.parametrize("path", sources())
def test_listed_module_exists(path: str) -> None:
    assert (ROOT / path).is_file()


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
