"""Deployments of Gantry that are attacked."""

import os
from enum import StrEnum

# Names of deployments, separated by commas; default: the embedded broker in one process.
DEPLOYMENTS_VARIABLE = "ATTACKED_DEPLOYMENTS"


class Deployment(StrEnum):
    """A way to run Gantry."""

    EMBEDDED = "embedded"
    WORKERS = "workers"
    CLUSTER = "cluster"


def selected() -> list[Deployment]:
    """Return the deployments of this run."""
    names = os.environ.get(DEPLOYMENTS_VARIABLE, Deployment.EMBEDDED)
    return [Deployment(name) for name in names.split(",")]
