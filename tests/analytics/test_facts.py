"""The facts file: defaults, documentation, and errors that name the key."""

import re
import textwrap
import tomllib
from pathlib import Path

import pytest

from analytics.facts import Facts, FactsError, Limits, Prices, parse

PAGE = (Path(__file__).parents[2] / "docs" / "analytics.md").read_text(encoding="utf-8")


def test_missing_facts_have_defaults() -> None:
    assert parse("") == Facts()
    given = parse('[limits]\nreplicas = 5\n[newest.grpc]\nJAVA = "5.0.7"\n')
    assert given.limits == Limits(replicas=5)
    assert given.prices == Prices()
    assert given.newest == {"grpc": {"JAVA": "5.0.7"}}


def test_documentation_shows_every_fact_with_its_default() -> None:
    match = re.search(r"^    \[prices\].*\n(?:(?:    .*)?\n)*", PAGE, re.MULTILINE)
    assert match is not None
    text = textwrap.dedent(match[0])
    shown = tomllib.loads(text)
    assert shown["prices"] == Prices().model_dump()
    assert shown["limits"] == Limits().model_dump()
    assert set(shown) == set(Facts.model_fields)
    parse(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("prices = 3", "prices: Input should be a valid dictionary"),
        ("[price]", "price: there is no such key"),
        ("[prices]\nmillion_request = 1", "prices.million_request: there is no such key"),
        ("[prices]\nbroker_hour = -0.1", "prices.broker_hour: Input should be greater than or equal to 0"),
        ("[prices]\nbroker_hour = nan", "prices.broker_hour: Input should be a finite number"),
        ("[prices]\nbroker_hour = true", "prices.broker_hour: Input should be a valid number"),
        ("[limits]\nbytes_per_s = 0", "limits.bytes_per_s: Input should be greater than 0"),
        ("[limits]\nreplicas = 1.5", "limits.replicas: Input should be a valid integer"),
        ("[limits]\nheadroom = 60", "limits.headroom: Input should be less than or equal to 1"),
        ('[newest]\nJAVA = "5.0.7"', "newest.JAVA: Input should be 'remoting' or 'grpc'"),
        ('[newest.grpc]\nJAVA = "latest"', "newest.grpc.JAVA: String should match pattern"),
        ("[newest.grpc]\nJAVA = 5.0", "newest.grpc.JAVA: Input should be a valid string"),
        (
            "[limits]\nreplicas = 0\nheadroom = 0",
            "limits.replicas: Input should be greater than or equal to 1 (and 1 more)",
        ),
        ("[limits", "it is no TOML: "),
    ],
)
def test_invalid_fact_error_names_its_key(text: str, sentence: str) -> None:
    with pytest.raises(FactsError) as told:
        parse(text)
    assert str(told.value).startswith(sentence)
    assert "\n" not in str(told.value)
