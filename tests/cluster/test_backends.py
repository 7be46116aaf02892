"""Selection of the backends that a scenario runs on."""

import pytest

from tests.cluster.backends import Backend, backends_of, parameters


def _marks(backends: list[Backend]) -> dict[str, set[str]]:
    return {value.id: {mark.name for mark in value.marks} for value in parameters(backends)}  # type: ignore[attr-defined]


def test_a_scenario_without_a_marker_runs_on_every_backend() -> None:
    assert backends_of(None) == list(Backend)


def test_a_marker_restricts_a_scenario_to_its_backends() -> None:
    assert backends_of(pytest.mark.backends(Backend.SOCKET, reason="why").mark) == [Backend.SOCKET]


@pytest.mark.parametrize(
    "marker",
    [
        pytest.mark.backends(Backend.SOCKET),
        pytest.mark.backends(reason="why"),
        pytest.mark.backends("elsewhere", reason="why"),
    ],
    ids=["no reason", "no backend", "unknown backend"],
)
def test_a_marker_without_reason_or_known_backend_is_rejected(marker: pytest.MarkDecorator) -> None:
    with pytest.raises(ValueError, match=r"reason|elsewhere"):
        backends_of(marker.mark)


def test_only_the_real_cluster_is_marked_as_such() -> None:
    assert _marks(list(Backend)) == {
        "cluster": {"contract", "cluster"},
        "embedded-in-process": {"contract"},
        "embedded-socket": {"contract"},
    }
    assert _marks([Backend.CLUSTER]) == {"cluster": {"cluster"}}
