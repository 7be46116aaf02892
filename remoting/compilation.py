"""Attributes of classes for mypyc, which compiles the hot path (`hatch_build.py`)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_):
        """Return a decorator without effect: only the compiler reads the attributes."""
        return lambda kind: kind


__all__ = ["mypyc_attr"]
