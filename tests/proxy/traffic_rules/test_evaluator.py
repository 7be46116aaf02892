"""Evaluation of rules for a request, without a proxy."""

import pytest

from proxy.traffic_rules.evaluator import Evaluator
from proxy.traffic_rules.match_criteria import Match
from proxy.traffic_rules.matching import matcher
from proxy.traffic_rules.parsing import parse
from remoting.codes import RequestCode
from tests.proxy.traffic_rules.fake_attributes import FakeAttributes

SEND = RequestCode.SEND_MESSAGE_V2
BASE = FakeAttributes(
    code=SEND,
    protocol="remoting",
    listener="main",
    server_name="mq.example",
    certificate="CN=shop,O=acme",
    address="10.1.2.3",
    client_id="10.1.2.3@7",
    language="JAVA",
    version="5.0.7",
    topics=("orders",),
    groups=("shop",),
    messages=1,
    size=100,
)


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ({}, True),
        ({"protocols": ["remoting"]}, True),
        ({"protocols": ["grpc"]}, False),
        ({"listeners": ["m*"]}, True),
        ({"server_names": ["*.example"]}, True),
        ({"server_names": ["*.test"]}, False),
        ({"subjects": ["CN=shop,*"]}, True),
        ({"networks": ["10.1.0.0/16", "192.0.2.0/24"]}, True),
        ({"networks": ["2001:db8::/32"]}, False),
        ({"clients": ["10.1.2.3@*"]}, True),
        ({"languages": ["java"]}, True),
        ({"languages": ["GO", "PY*"]}, False),
        ({"version_from": "5.0.7"}, True),
        ({"version_from": "5.0.8"}, False),
        ({"version_from": "5"}, True),
        ({"version_below": "5.0.7"}, False),
        ({"version_below": "5.0.10"}, True),
        ({"topics": ["order?"]}, True),
        ({"topics": ["orders"], "groups": ["shop"]}, True),
        ({"topics": ["orders"], "groups": ["other"]}, False),
    ],
)
def test_matcher_tests_each_criterion(match: dict[str, object], expected: bool) -> None:
    assert matcher(Match.model_validate(match))(BASE) is expected


def test_unknown_attributes_match_no_criterion() -> None:
    unknown = FakeAttributes(code=SEND, address="unix:/run/gantry.sock")
    for match in (
        {"clients": ["*"]},
        {"languages": ["*"]},
        {"version_from": "0"},
        {"server_names": ["*"]},
        {"topics": ["*"]},
        {"networks": ["0.0.0.0/0"]},
    ):
        assert not matcher(Match.model_validate(match))(unknown)


def test_ipv4_mapped_addresses_match_ipv4_networks() -> None:
    mapped = FakeAttributes(code=SEND, address="::ffff:10.1.2.3")
    assert matcher(Match.model_validate({"networks": ["10.0.0.0/8"]}))(mapped)


ORDER = """
[[rule]]
name = "limit"
kind = "limit"
messages = 1
match.topics = ["orders"]

[[rule]]
name = "deny"
kind = "deny"
match.groups = ["shop"]
"""


def rejected_by(evaluator: Evaluator, request: FakeAttributes, at: float = 0.0) -> str | None:
    """Return the kind of the rule that rejects a request; None if it is served."""
    decision = evaluator.evaluate(request, at)
    return None if decision is None or decision.rejection is None else decision.rejection.kind


def test_a_send_rejected_by_a_later_rule_spends_no_tokens() -> None:
    evaluator = Evaluator(parse(ORDER))
    assert [rejected_by(evaluator, BASE) for _ in range(3)] == ["deny"] * 3
    allowed = FakeAttributes(code=SEND, topics=("orders",), groups=("else",), messages=1)
    assert [rejected_by(evaluator, allowed) for _ in range(2)] == [None, "limit"]


def test_limits_can_be_evaluated_for_recorded_traffic() -> None:
    evaluator = Evaluator(parse(ORDER))
    record = FakeAttributes(code=SEND, topics=("orders",), messages=1)
    # Four per second, of which one passes.
    assert [rejected_by(evaluator, record, at / 4) for at in range(20)] == [None, "limit", "limit", "limit"] * 5
    counts = {active.name: active.counts.enforced for active in evaluator.rules}
    assert counts == {"limit": 15, "deny": 0}


@pytest.mark.parametrize("dry", [False, True])
def test_a_send_over_one_unit_of_a_limit_spends_no_tokens_of_the_others(dry: bool) -> None:
    evaluator = Evaluator(
        parse(f'dry_run = {str(dry).lower()}\n[[rule]]\nname = "l"\nkind = "limit"\nmessages = 3\nbytes = 10')
    )
    counts = evaluator.rules[0].counts
    for size, beyond in ((10, 0), (10, 1), (10, 2), (0, 2), (0, 2), (0, 3)):
        evaluator.evaluate(FakeAttributes(code=SEND, messages=1, size=size), 0.0)
        assert (counts.dry_run if dry else counts.enforced) == beyond


def test_a_limit_gives_tokens_back_for_sends_that_a_later_rule_rejects() -> None:
    limited = '[[rule]]\nname = "l"\nkind = "limit"\nmessages = 1\n'
    evaluator = Evaluator(parse(limited + '[[rule]]\nname = "d"\nkind = "deny"\nmatch.topics = ["closed"]'))
    for topics, kind in ((("closed",), "deny"), (("closed",), "deny"), (("open",), None), (("open",), "limit")):
        assert rejected_by(evaluator, FakeAttributes(code=SEND, topics=topics, messages=1)) == kind


def test_the_cache_of_matching_rules_is_bounded() -> None:
    evaluator = Evaluator(parse('[[rule]]\nname = "d"\nkind = "deny"\nmatch.topics = ["closed"]'))
    cache = evaluator._indexes[SEND]._cache
    evaluator.evaluate(FakeAttributes(code=SEND, topics=("t" * 100_000,)), 0.0)
    assert not cache
    for number in range(12_000):
        evaluator.evaluate(FakeAttributes(code=SEND, topics=(f"t{number}",)), 0.0)
    assert len(cache) <= 10_000


def test_receives_are_charged_by_their_replies() -> None:
    evaluator = Evaluator(parse(ORDER))
    record = FakeAttributes(code=RequestCode.PULL_MESSAGE, topics=("orders",))
    decision = evaluator.evaluate(record, 0.0)
    assert decision is not None
    assert decision.wait == 0
    decision.meter(11, 1000, 0.0)
    decision = evaluator.evaluate(record, 1.0)
    assert decision is not None
    # Ten tokens are owed, one was refilled, and a receive needs one.
    assert (decision.wait, decision.waiting_limit) == (10.0, "limit")


def test_a_percentage_is_compared_with_random_numbers() -> None:
    text = '[[rule]]\nname = "f"\nkind = "fault"\nerror = 1\npercent = 25'
    numbers = iter([0.0, 24.9, 25.0, 99.9])
    evaluator = Evaluator(parse(text), draw_percent=lambda: next(numbers))
    assert [rejected_by(evaluator, BASE) for _ in range(4)] == ["fault", "fault", None, None]


def test_counts_and_token_buckets_survive_a_reload() -> None:
    first = Evaluator(parse(ORDER))
    record = FakeAttributes(code=SEND, topics=("orders",), messages=1)
    first.evaluate(record, 0.0)
    second = Evaluator(parse(ORDER.replace('["orders"]', '["orders", "more"]')), first)
    assert rejected_by(second, record) == "limit"
    assert second.rules[0].counts.matched == 2
    # A changed limit under the same name starts with full buckets.
    third = Evaluator(parse(ORDER.replace("messages = 1", "messages = 2")), second)
    assert rejected_by(third, record) is None
    assert third.rules[0].counts.matched == 3
