"""Programs from the Go registry that judge files of the project: promtool, kustomize, and Compose's own parser.

`sources/go.mod` pins them. They are built once, all together, into a cache.
"""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

_SOURCES = Path(__file__).with_name("sources")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gantry-tools"
# promtool with all of Prometheus' service discoveries would be several hundred megabytes of cloud SDKs.
_TAGS = "remove_all_sd"


def promtool() -> Path:
    """Prometheus' checker of metrics, configuration and rules."""
    return install() / "promtool"


def kustomize() -> Path:
    """Renders Kubernetes manifests."""
    return install() / "kustomize"


def compose() -> Path:
    """compose-go's command: reads a Compose file as Docker Compose does, and prints what it understood."""
    # Its package is called just this.
    return install() / "cmd"


def install() -> Path:
    """The folder of all programs. Builds them where the cache has none of these versions: minutes, once.

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
            # Somebody else may have been faster; both are the same.
            if not target.exists():
                scratch.rename(target)
    return target
