"""What rules say of a request, without a proxy."""

import pytest

from proxy.traffic_rules.evaluator import Evaluator
from proxy.traffic_rules.matching import matcher
from proxy.traffic_rules.model import Match, parse
from remoting.codes import RequestCode
from tests.proxy.traffic_rules.request import Request

SEND = RequestCode.SEND_MESSAGE_V2
BASE = Request(
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
    ("match", "fits"),
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
def test_matching(match: dict[str, object], fits: bool) -> None:
    assert matcher(Match.model_validate(match))(BASE) is fits


def test_what_is_not_known_fits_nothing() -> None:
    unknown = Request(code=SEND, address="unix:/run/gantry.sock")
    for match in (
        {"clients": ["*"]},
        {"languages": ["*"]},
        {"version_from": "0"},
        {"server_names": ["*"]},
        {"topics": ["*"]},
        {"networks": ["0.0.0.0/0"]},
    ):
        assert not matcher(Match.model_validate(match))(unknown)


def test_addresses_in_ipv6_dress_are_ipv4s() -> None:
    mapped = Request(code=SEND, address="::ffff:10.1.2.3")
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


def refused(judge: Evaluator, subject: Request, at: float = 0.0) -> str | None:
    """The kind of rule that refuses a request; None: it is served."""
    verdict = judge.judge(subject, at)
    return None if verdict is None or verdict.refusal is None else verdict.refusal.kind


def test_whatever_is_refused_further_down_costs_nothing() -> None:
    judge = Evaluator(parse(ORDER))
    assert [refused(judge, BASE) for _ in range(3)] == ["deny"] * 3
    allowed = Request(code=SEND, topics=("orders",), groups=("else",), messages=1)
    assert [refused(judge, allowed) for _ in range(2)] == [None, "limit"]


def test_traffic_of_the_past() -> None:
    judge = Evaluator(parse(ORDER))
    record = Request(code=SEND, topics=("orders",), messages=1)
    # Four a second, of which one passes.
    assert [refused(judge, record, at / 4) for at in range(20)] == [None, "limit", "limit", "limit"] * 5
    counts = {active.name: active.counts.enforced for active in judge.rules}
    assert counts == {"limit": 15, "deny": 0}


@pytest.mark.parametrize("dry", [False, True])
def test_what_one_unit_forbids_costs_nothing_of_the_others(dry: bool) -> None:
    judge = Evaluator(
        parse(f'dry_run = {str(dry).lower()}\n[[rule]]\nname = "l"\nkind = "limit"\nmessages = 3\nbytes = 10')
    )
    counts = judge.rules[0].counts
    for size, beyond in ((10, 0), (10, 1), (10, 2), (0, 2), (0, 2), (0, 3)):
        judge.judge(Request(code=SEND, messages=1, size=size), 0.0)
        assert (counts.dry_run if dry else counts.enforced) == beyond


def test_what_a_later_rule_refuses_is_not_counted_by_a_limit() -> None:
    limited = '[[rule]]\nname = "l"\nkind = "limit"\nmessages = 1\n'
    judge = Evaluator(parse(limited + '[[rule]]\nname = "d"\nkind = "deny"\nmatch.topics = ["closed"]'))
    for topics, kind in ((("closed",), "deny"), (("closed",), "deny"), (("open",), None), (("open",), "limit")):
        assert refused(judge, Request(code=SEND, topics=topics, messages=1)) == kind


def test_made_up_names_do_not_fill_the_memory() -> None:
    judge = Evaluator(parse('[[rule]]\nname = "d"\nkind = "deny"\nmatch.topics = ["closed"]'))
    known = judge._dockets[SEND]._known
    judge.judge(Request(code=SEND, topics=("t" * 100_000,)), 0.0)
    assert not known
    for number in range(12_000):
        judge.judge(Request(code=SEND, topics=(f"t{number}",)), 0.0)
    assert len(known) <= 10_000


def test_receives_are_paid_for_by_what_they_brought() -> None:
    judge = Evaluator(parse(ORDER))
    record = Request(code=RequestCode.PULL_MESSAGE, topics=("orders",))
    verdict = judge.judge(record, 0.0)
    assert verdict is not None
    assert verdict.wait == 0
    verdict.answered(11, 1000, 0.0)
    verdict = judge.judge(record, 1.0)
    assert verdict is not None
    # Ten are owed, one second is over, and one has to be there.
    assert (verdict.wait, verdict.waits_for) == (10.0, "limit")


def test_chance_decides_on_shares() -> None:
    text = '[[rule]]\nname = "f"\nkind = "fault"\nerror = 1\npercent = 25'
    numbers = iter([0.0, 24.9, 25.0, 99.9])
    judge = Evaluator(parse(text), chance=lambda: next(numbers))
    assert [refused(judge, BASE) for _ in range(4)] == ["fault", "fault", None, None]


def test_counts_and_debts_outlive_a_reload() -> None:
    first = Evaluator(parse(ORDER))
    record = Request(code=SEND, topics=("orders",), messages=1)
    first.judge(record, 0.0)
    second = Evaluator(parse(ORDER.replace('["orders"]', '["orders", "more"]')), first)
    assert refused(second, record) == "limit"
    assert second.rules[0].counts.matched == 2
    # Another limit under the same name is a new one.
    third = Evaluator(parse(ORDER.replace("messages = 1", "messages = 2")), second)
    assert refused(third, record) is None
    assert third.rules[0].counts.matched == 3
