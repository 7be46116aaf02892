"""h2spec and grpc-go's interop client: pinned by `go_tools/go.mod`, and built once into a cache."""

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_SOURCES = Path(__file__).with_name("go_tools")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gantry-conformance"


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
    digest = hashlib.sha256(b"".join((_SOURCES / name).read_bytes() for name in ("go.mod", "go.sum")))
    target = _CACHE / digest.hexdigest()[:12]
    if not target.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as name:
            scratch = Path(name) / "bin"
            scratch.mkdir()
            subprocess.run(["go", "build", "-o", f"{scratch}{os.sep}", "tool"], cwd=_SOURCES, check=True)
            # A concurrent build may have finished first, with the same result.
            if not target.exists():
                scratch.rename(target)
    return target
