"""Programs from the Go registry that check files of the project: promtool, kustomize, and Compose's own parser.

`sources/go.mod` pins them. They are built once, together, into a cache.
"""

from pathlib import Path

from tests.tools import go_programs

_SOURCES = Path(__file__).with_name("sources")
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
    return go_programs.install(_SOURCES, "gantry-tools", "-tags", _TAGS)
