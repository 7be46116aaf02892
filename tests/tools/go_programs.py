"""Programs from the Go registry, pinned by a go.mod and built into the user's cache."""

import fcntl
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def install(sources: Path, name: str, *options: str) -> Path:
    """Return the folder of the tools of `sources`/go.mod; build them if the cache lacks these versions.

    name: that of the folder in the cache. options: of `go build`. Another process that builds them is waited for: two
    builds would take the machine from each other. Raises CalledProcessError.
    """
    digest = hashlib.sha256(b"".join((sources / file).read_bytes() for file in ("go.mod", "go.sum")))
    cache = _CACHE / name
    target = cache / digest.hexdigest()[:12]
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=cache) as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            scratch = Path(folder) / "bin"
            scratch.mkdir()
            subprocess.run(["go", "build", *options, "-o", f"{scratch}{os.sep}", "tool"], cwd=sources, check=True)
            scratch.rename(target)
    return target
