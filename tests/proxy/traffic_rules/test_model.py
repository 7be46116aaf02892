"""Request codes of rules."""

from enum import IntEnum

from proxy.traffic_rules.match_criteria import SENDS
from proxy.traffic_rules.model import Allow, Limit, Maintenance
from remoting.codes import RequestCode


def test_a_rule_applies_to_the_codes_of_its_kind_and_match() -> None:
    def codes(kind: type[Limit] | type[Allow] | type[Maintenance], **match: object) -> frozenset[IntEnum]:
        values = {"name": "r", "kind": kind.__name__.lower(), "match": match}
        return kind.model_validate(values | ({"requests": 1} if kind is Limit else {})).codes

    assert codes(Maintenance) == SENDS
    assert codes(Maintenance, requests=["SEND_MESSAGE_V2", "PULL_MESSAGE"]) == {RequestCode.SEND_MESSAGE_V2}
    assert RequestCode.ACK_MESSAGE not in codes(Limit) | codes(Limit, actions=["Sub"])
    assert RequestCode.END_TRANSACTION not in codes(Limit, actions=["Pub"])
    assert RequestCode.GET_MAX_OFFSET in codes(Limit, actions=["Get"])
    # Heartbeats are covered only by rules that name them.
    assert RequestCode.HEART_BEAT not in codes(Allow) | codes(Allow, actions=["Sub"])
    assert codes(Allow, requests=["HEART_BEAT"]) == {RequestCode.HEART_BEAT}
    # Both actions and requests must fit.
    assert codes(Allow, actions=["Pub"], requests=["SEND_MESSAGE", "PULL_MESSAGE"]) == {RequestCode.SEND_MESSAGE}
    assert codes(Allow, actions=["Sub"], requests=["HEART_BEAT"]) == {RequestCode.HEART_BEAT}
