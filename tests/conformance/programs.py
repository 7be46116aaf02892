"""h2spec and grpc-go's interop client: pinned by `go_tools/go.mod`, and built once into a cache."""

from dataclasses import dataclass
from pathlib import Path

from tests.tools import go_programs

_SOURCES = Path(__file__).with_name("go_tools")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one case on one transport. `note`: the reason for a failure."""

    case: str
    passed: bool
    note: str = ""


def install() -> Path:
    """Return the directory of the programs ``h2spec`` and ``client`` (grpc-go's interop client).

    Builds these versions unless they are in the cache. Raises CalledProcessError.
    """
    return go_programs.install(_SOURCES, "gantry-conformance")
