"""The prose counter: kinds of prose, limits."""

from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.style.prose import ALWAYS, Text, counts, exceeded, room, texts


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Reject connections over a limit.", ()),
        ("What a connection costs.", ("clauses", "leading")),
        ("Close it for whoever waits.", ("clauses",)),
        ("Nobody reads this.", ("vague",)),
        ("Of closed clients.", ("leading",)),
        ("of the rest of a comment", ()),
        ("Disable the users who have expired.", ("clauses",)),
    ],
)
def test_text_kinds(text: str, kinds: tuple[str, ...]) -> None:
    assert Text(Path("module.py"), 1, text).kinds == kinds


def test_texts_yields_docstrings_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""Name."""\n\n\ndef function() -> None:\n    """Do it."""\n    return  # why\n')
    assert [(text.line, text.text) for text in texts(file)] == [(1, "Name."), (5, "Do it."), (6, "why")]


def test_exceeded_names_kinds_above_their_limit() -> None:
    plain, clause = Text(Path("module.py"), 1, "Name."), Text(Path("module.py"), 1, "Close what is open.")
    assert exceeded(counts([plain] * 97 + [clause] * 3)) == []
    assert exceeded(counts([plain] * 96 + [clause] * 4)) == ["clauses"]


def test_a_small_room_may_have_two_of_a_kind() -> None:
    plain, clause = Text(Path("module.py"), 1, "Name."), Text(Path("module.py"), 1, "Close what is open.")
    assert exceeded(counts([plain] * 8 + [clause] * 2), ALWAYS) == []
    assert exceeded(counts([plain] * 7 + [clause] * 3), ALWAYS) == ["clauses"]
    assert exceeded(counts([plain] * 8 + [clause] * 2)) == ["clauses"]


def test_room_is_a_folder_of_two_levels_at_most() -> None:
    names = ("proxy/auth/sources/files.py", "remoting/frame.py", "hatch_build.py")
    assert [room(ROOT / name) for name in names] == ["proxy/auth", "remoting", "."]
