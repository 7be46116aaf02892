import pytest

from remoting.codes import version_ordinal, version_text


@pytest.mark.parametrize(
    ("version", "ordinal"),
    [((4, 0, 0), 213), ((4, 1, 0), 233), ((4, 9, 3), 399), ((4, 9, 4), 401), ((5, 0, 0), 413), ((5, 3, 3), 479)],
)
def test_version_numbers_match_java(version: tuple[int, int, int], ordinal: int) -> None:
    assert version_ordinal(*version) == ordinal
    # The snapshot of a version precedes it.
    assert version_text(ordinal) == version_text(ordinal - 1) == ".".join(map(str, version))


@pytest.mark.parametrize("ordinal", [-1, 0, 37, 121, 211])
def test_versions_before_4_are_shown_as_numbers(ordinal: int) -> None:
    assert version_text(ordinal) == f"V{ordinal}"
