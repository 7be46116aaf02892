"""Matching of requests against the criteria of a rule."""

import pytest

from proxy.traffic_rules.match_criteria import Match
from proxy.traffic_rules.matching import matcher
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
        {"users": ["*"]},
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


def test_rules_match_authenticated_users() -> None:
    alice = FakeAttributes(code=SEND, user="alice")
    assert matcher(Match.model_validate({"users": ["al*"]}))(alice)
    assert not matcher(Match.model_validate({"users": ["bob"]}))(alice)
