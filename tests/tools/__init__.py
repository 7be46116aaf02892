"""Programs from the Go registry that check files of the project: promtool, kustomize, and Compose's own parser.

`sources/go.mod` pins them. They are built once, together, into a cache.
"""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

_SOURCES = Path(__file__).with_name("sources")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gantry-tools"
# With all of its service discoveries, promtool would need several hundred megabytes of cloud SDKs.
_TAGS = "remove_all_sd"


def promtool() -> Path:
    """Return the path of Prometheus' checker of metrics, configuration and rules."""
    return install() / "promtool"


def kustomize() -> Path:
    """Return the path of kustomize, which renders Kubernetes manifests."""
    return install() / "kustomize"


def compose() -> Path:
    """Return the path of compose-go's command, which parses a Compose file as Docker Compose does and prints it."""
    # The name of its package.
    return install() / "cmd"


def install() -> Path:
    """Return the folder of all programs; build them if the cache lacks these versions, which takes minutes once.

    Raises CalledProcessError.
    """
    digest = hashlib.sha256(b"".join((_SOURCES / name).read_bytes() for name in ("go.mod", "go.sum")))
    target = _CACHE / digest.hexdigest()[:12]
    if not target.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as name:
            scratch = Path(name) / "bin"
            scratch.mkdir()
            build = ["go", "build", "-tags", _TAGS, "-o", f"{scratch}{os.sep}", "tool"]
            subprocess.run(build, cwd=_SOURCES, check=True)
            # Another process may have been faster; both results are the same.
            if not target.exists():
                scratch.rename(target)
    return target
