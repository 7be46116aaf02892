"""The kind of this build: with compiled modules, or pure Python."""

from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Literal

import remoting.frame

BuildKind = Literal["compiled", "pure"]


@cache
def build_kind() -> BuildKind:
    """Return "compiled" if the hot path was compiled by mypyc (tool.gantry.compiled in pyproject.toml), else "pure"."""
    return "compiled" if (remoting.frame.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES)) else "pure"
