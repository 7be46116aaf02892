"""The judges from the Go registry: `judges/go.mod` pins them, and they are built once into a cache."""

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_SOURCES = Path(__file__).with_name("judges")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gantry-conformance"


@dataclass(frozen=True, slots=True)
class Result:
    """One case on one transport. `note`: what the judge had to complain about."""

    case: str
    passed: bool
    note: str = ""


def install() -> Path:
    """The folder of the programs ``h2spec`` and ``client``, the latter being grpc-go's interop client.

    Builds them where the cache has none of these versions. Raises CalledProcessError.
    """
    digest = hashlib.sha256(b"".join((_SOURCES / name).read_bytes() for name in ("go.mod", "go.sum")))
    target = _CACHE / digest.hexdigest()[:12]
    if not target.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as name:
            scratch = Path(name) / "bin"
            scratch.mkdir()
            subprocess.run(["go", "build", "-o", f"{scratch}{os.sep}", "tool"], cwd=_SOURCES, check=True)
            # Somebody else may have been faster; both are the same.
            if not target.exists():
                scratch.rename(target)
    return target
