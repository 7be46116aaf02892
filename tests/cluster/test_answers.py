"""Answers of the embedded broker to single questions, compared with a real broker's."""

from pathlib import Path

import pytest

from tests.cluster import answers
from tests.cluster.answers import KNOWN, Answer, compare


@pytest.mark.cluster
@pytest.mark.contract
@pytest.mark.timeout(600)
def test_the_embedded_broker_answers_as_a_real_broker_but_for_known_differences(tmp_path: Path) -> None:
    differences = answers.run(tmp_path)
    assert len(differences) > 190
    assert {question: difference for question, difference in differences.items() if difference} == {}


def test_compare_reports_new_differences_and_known_ones_that_are_gone() -> None:
    answer: Answer = (0, {}, False)
    other: Answer = (1, {}, False)
    known, gone = list(KNOWN)[:2]
    real = {"same": answer, "different": answer, "unanswered": answer, known: answer, gone: answer}
    embedded = {"same": answer, "different": other, known: other, gone: answer}
    differences = compare(real, embedded)
    assert [question for question, difference in differences.items() if difference] == ["different", "unanswered", gone]
    assert "no longer differs" in differences[gone]
