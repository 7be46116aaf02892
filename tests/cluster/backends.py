"""Backends of the scenarios: a real cluster, and the embedded broker in Gantry's process and over its socket.

A test that uses the fixture `backend`, directly or through `cluster` or `gantry`, runs once on each of them. The marker
`backends(*backends, reason=…)` restricts a test to those on which its scenario is possible.
"""

from enum import StrEnum

import pytest


class Backend(StrEnum):
    """A kind of servers that a scenario runs on."""

    CLUSTER = "cluster"
    IN_PROCESS = "embedded-in-process"
    SOCKET = "embedded-socket"


def backends_of(marker: pytest.Mark | None) -> list[Backend]:
    """Return the backends of a test with this `backends` marker; without one, all.

    Raises ValueError for a marker without a reason, or with a backend that does not exist.
    """
    if marker is None:
        return list(Backend)
    if not marker.kwargs.get("reason") or not marker.args:
        raise ValueError("the marker `backends` needs backends and a reason")
    return [Backend(name) for name in marker.args]


def parameters(backends: list[Backend]) -> list[object]:
    """Return the values of the fixture `backend`, with the markers of each.

    A scenario that runs on a real cluster and on an embedded broker is part of the contract.
    """
    contract = [pytest.mark.contract] if Backend.CLUSTER in backends and len(backends) > 1 else []
    values: list[object] = []
    for backend in backends:
        marks = [*contract, *([pytest.mark.cluster] if backend is Backend.CLUSTER else [])]
        values.append(pytest.param(backend, marks=marks, id=backend.value))
    return values
