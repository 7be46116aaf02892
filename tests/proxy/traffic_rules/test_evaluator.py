"""Evaluation of rules for a request, without a proxy."""

import subprocess
import sys

import pytest

from proxy.traffic_rules.evaluator import Evaluator
from proxy.traffic_rules.parsing import parse
from remoting.codes import RequestCode
from tests.proxy.traffic_rules.fake_attributes import FakeAttributes

SEND = RequestCode.SEND_MESSAGE_V2
SHOP_ORDER = FakeAttributes(code=SEND, topics=("orders",), groups=("shop",), messages=1)


LIMIT_THEN_DENY = """
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
    evaluator = Evaluator(parse(LIMIT_THEN_DENY))
    assert [rejected_by(evaluator, SHOP_ORDER) for _ in range(3)] == ["deny"] * 3
    allowed = FakeAttributes(code=SEND, topics=("orders",), groups=("else",), messages=1)
    assert [rejected_by(evaluator, allowed) for _ in range(2)] == [None, "limit"]


def test_limits_can_be_evaluated_for_recorded_traffic() -> None:
    evaluator = Evaluator(parse(LIMIT_THEN_DENY))
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
    evaluator = Evaluator(parse(LIMIT_THEN_DENY))
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
    assert [rejected_by(evaluator, SHOP_ORDER) for _ in range(4)] == ["fault", "fault", None, None]


def test_counts_and_token_buckets_survive_a_reload() -> None:
    first = Evaluator(parse(LIMIT_THEN_DENY))
    record = FakeAttributes(code=SEND, topics=("orders",), messages=1)
    first.evaluate(record, 0.0)
    second = Evaluator(parse(LIMIT_THEN_DENY.replace('["orders"]', '["orders", "more"]')), first)
    assert rejected_by(second, record) == "limit"
    assert second.rules[0].counts.matched == 2
    # A changed limit under the same name starts with full buckets.
    third = Evaluator(parse(LIMIT_THEN_DENY.replace("messages = 1", "messages = 2")), second)
    assert rejected_by(third, record) is None
    assert third.rules[0].counts.matched == 3


def test_the_evaluator_imports_no_part_of_the_running_proxy() -> None:
    heavy = ("proxy.app", "proxy.core.messaging", "grpc", "uvloop", "prometheus_client", "google.protobuf")
    code = f"import sys, proxy.traffic_rules.evaluator; sys.exit(any(name in sys.modules for name in {heavy!r}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
