"""The recorded answers of the official Java proxy, and their comparison with another proxy's."""

import json
from pathlib import Path

from tests.official_limits.answers import Answer
from tests.official_limits.differences import BROKERS, DIFFERENCES, REMOTING_DIFFERENCES, difference

_FILES = {half: Path(__file__).with_name(f"official_{half}answers.json") for half in ("", "remoting_")}
GRPC, REMOTING = _FILES


def recorded(half: str = GRPC) -> dict[str, Answer]:
    """Return the recorded answers of one half of the table, by label."""
    answers: dict[str, Answer] = json.loads(_FILES[half].read_text())
    return answers


def record(answers: dict[str, Answer], half: str = GRPC) -> None:
    """Record answers of the official proxy."""
    _FILES[half].write_text(json.dumps(answers, indent=1) + "\n")


def unexpected(answers: dict[str, Answer], half: str = GRPC) -> dict[str, str]:
    """Return the answers that differ from the official ones, apart from the known differences, by label.

    A known difference that does not exist any more is unexpected, too.
    """
    official = recorded(half)
    differences = DIFFERENCES if half == GRPC else REMOTING_DIFFERENCES
    found = {}
    for label, answer in answers.items():
        expected, known = official.get(label), difference(label, differences)
        if known is None and answer != expected:
            found[label] = f"{answer} instead of the official {expected}"
        elif known is not None and (
            answer[0] != known.code != BROKERS or (answer == expected and not known.newer_brokers)
        ):
            found[label] = f"{answer} instead of {known.code}; official: {expected}"
    return found
