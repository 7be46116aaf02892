"""Sampling rules."""

import random

import pytest
from pydantic import ValidationError

from proxy.observability.records.sampling import Sampling
from proxy.settings.traffic_records import TrafficSettings
from tests.proxy.observability.records.samples import observation

RULES = (("audit", 1.0), ("logs-*", 0.25), ("none-?", 0.0))


def test_records_of_a_sampled_topic_have_a_weight() -> None:
    sampling = Sampling(RULES, random.Random(1).random)
    weights = [weight for _ in range(10_000) if (weight := sampling.weight(observation("logs-a"))) is not None]
    assert set(weights) == {4.0}
    assert len(weights) + sampling.left_out["logs-*"] == 10_000
    # Five standard deviations.
    assert abs(len(weights) - 2_500) < 5 * (10_000 * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize("topic", ["audit", "other", None, "none-10", "LOGS-a"])
def test_requests_that_match_no_rule_are_recorded(topic: str | None) -> None:
    sampling = Sampling(RULES, lambda: 0.999)
    assert sampling.weight(observation(topic)) == 1.0
    assert not sampling.left_out


def test_failed_requests_are_always_recorded() -> None:
    sampling = Sampling(RULES, lambda: 0.999)
    assert [sampling.weight(observation("none-1", ok=False)), sampling.weight(observation("none-1"))] == [1.0, None]
    assert sampling.left_out == {"none-?": 1}


def test_the_first_matching_rule_applies() -> None:
    sampling = Sampling((("a*", 1.0), ("*", 0.0)), lambda: 0.5)
    assert [sampling.weight(observation(topic)) for topic in ("ab", "b", None)] == [1.0, None, None]
    assert sampling.left_out == {"*": 2}


def test_the_number_of_cached_topics_is_bounded() -> None:
    sampling = Sampling(RULES)
    for number in range(25_000):
        sampling.weight(observation(f"t{number}"))
    assert len(sampling._by_topic) <= 10_000


def test_rules_are_parsed() -> None:
    assert TrafficSettings(sample=["audit=1", "a=b=0.5"]).rules == (("audit", 1.0), ("a=b", 0.5))
    assert TrafficSettings.model_validate({"sample": "logs-*=0.01; *=1"}).rules == (("logs-*", 0.01), ("*", 1.0))


@pytest.mark.parametrize("rule", ["", "logs", "=0.5", "logs=", "logs=x", "logs=1.1", "logs=-0.1", "logs=nan"])
def test_an_invalid_rule_is_rejected_with_an_example(rule: str) -> None:
    with pytest.raises(ValidationError, match=r"orders-\*=0.1"):
        TrafficSettings(sample=[rule])
