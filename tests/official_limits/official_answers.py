"""The recorded answers of the official Java proxy, and their comparison with another proxy's."""

import json
from pathlib import Path

from tests.official_limits.answers import Answer
from tests.official_limits.cases import CASES
from tests.official_limits.differences import difference

_FILE = Path(__file__).with_name("official_answers.json")


def recorded() -> dict[str, Answer]:
    """Return the recorded answers, by label."""
    answers: dict[str, Answer] = json.loads(_FILE.read_text())
    return answers


def record(answers: dict[str, Answer]) -> None:
    """Record answers of the official proxy."""
    _FILE.write_text(json.dumps(answers, indent=1) + "\n")


def unexpected(answers: dict[str, Answer]) -> dict[str, str]:
    """Return the answers that differ from the official ones, apart from the known differences, by label.

    A known difference that does not exist any more is unexpected, too.
    """
    official = recorded()
    found = {}
    for label in CASES:
        answer, expected, known = answers[label], official.get(label), difference(label)
        if known is None and answer != expected:
            found[label] = f"{answer} instead of the official {expected}"
        elif known is not None and (answer[0] != known.code or expected is None or answer[0] == expected[0]):
            found[label] = f"{answer} instead of {known.code}; official: {expected}"
    return found
