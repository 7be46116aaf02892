"""Parsing and validation of the rules file."""

from pathlib import Path

import pytest

from proxy.traffic_rules.parsing import RulesError, parse

EXAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "rules.toml"


def test_the_example_has_every_kind() -> None:
    file = parse(EXAMPLE.read_text())
    kinds = {rule.kind for rule in file.rule}
    assert kinds == {
        "allow",
        "deny",
        "limit",
        "connections",
        "maintenance",
        "mirror",
        "fault",
        "namespace",
        "alias",
    }


def test_an_empty_file_has_no_rules() -> None:
    assert parse("").rule == ()


def _rule(**keys: str) -> str:
    lines = {"name": '"r"', **keys}
    return "[[rule]]\n" + "\n".join(f"{key} = {value}" for key, value in lines.items())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]", "Expected ']]'"),
        ("rules = 1", "rules: unknown key"),
        (_rule(), "rule 'r': kind: required, one of alias, allow"),
        (_rule(kind='"quota"'), "rule 'r': Input tag 'quota'"),
        (_rule(name='"a b"', kind='"deny"'), "rule 'a b', name: String should match"),
        ("[[rule]]\nkind = 'deny'", "rule no. 1, name: required"),
        (_rule(kind='"deny"', topic='"t"'), "rule 'r', topic: unknown key"),
        (_rule(kind='"deny"', **{"match.topic": '["t"]'}), "rule 'r', match.topic: unknown key"),
        (_rule(kind='"deny"', **{"match.requests": '["SEND"]'}), "match.requests.0: clients send no request 'SEND'"),
        (_rule(kind='"deny"', **{"match.requests": '["CHECK_TRANSACTION_STATE"]'}), "clients send no request"),
        (_rule(kind='"allow"', **{"match.networks": "[]"}), "rule 'r', match.networks: the list is empty"),
        (_rule(kind='"connections"', most="1", **{"match.listeners": "[]"}), "rule 'r', match.listeners: the list is"),
        (_rule(kind='"deny"', **{"match.actions": '["Any"]'}), "rule 'r', match.actions.0: Input should be 'Pub'"),
        (_rule(kind='"deny"', **{"match.actions": '["Pub", "List"]'}), "rule 'r', match.actions.1: Input should be"),
        (
            _rule(kind='"deny"', **{"match.actions": '["Sub"]', "match.requests": '["SEND_MESSAGE_V2"]'}),
            "rule 'r': match.actions, match.requests: no request fits all of them",
        ),
        (
            _rule(kind='"limit"', requests="1", **{"match.actions": '["Sub"]', "match.requests": '["SEND_MESSAGE"]'}),
            "rule 'r': match.actions, match.requests: no request fits all of them",
        ),
        (_rule(kind='"deny"', **{"match.version_from": '"five"'}), "rule 'r', match.version_from: String should match"),
        (_rule(kind='"limit"'), "rule 'r': messages, bytes, requests: at least one is required"),
        (_rule(kind='"limit"', messages="0"), "rule 'r', messages: Input should be greater than 0"),
        (_rule(kind='"limit"', messages="1", per='["queue"]'), "rule 'r', per.0: Input should be"),
        (
            _rule(kind='"limit"', bytes="1", **{"match.requests": '["ACK_MESSAGE"]'}),
            "rule 'r': match.requests, match.actions: ACK_MESSAGE can only be limited by `requests`",
        ),
        (_rule(kind='"connections"'), "rule 'r', most: required"),
        (
            _rule(kind='"connections"', most="1", **{"match.topics": '["t"]'}),
            "rule 'r': match.topics: rules of this kind are applied when a connection opens",
        ),
        (_rule(kind='"maintenance"', **{"match.actions": '["Sub"]'}), "and none of these matches"),
        (_rule(kind='"mirror"', to='"t"'), "rule 'r': match.topics: required for a mirror"),
        (
            _rule(kind='"mirror"', to='"t-2"', **{"match.topics": '["t-*"]'}),
            "rule 'r': to: t-2 is one of the mirrored topics",
        ),
        (_rule(kind='"fault"'), "rule 'r': delay, error: at least one is required"),
        (_rule(kind='"fault"', error='"BROKEN"'), "rule 'r', error: unknown response code 'BROKEN'"),
        (_rule(kind='"fault"', error="1", percent="0"), "rule 'r', percent: Input should be greater than 0"),
        (_rule(kind='"namespace"', namespace='"a%b"'), "rule 'r', namespace: String should match"),
        (_rule(kind='"alias"', topic='"t"', real='"t"'), "rule 'r': topic, real: the names are equal"),
        (_rule(kind='"alias"', topic='"t"', real='"%RETRY%g"'), "%RETRY%g is a retry or dead letter topic"),
        (_rule(kind='"deny"') + "\n" + _rule(kind='"allow"'), "rule 'r': the name is used by another rule"),
        (
            _rule(kind='"alias"', topic='"a"', real='"t"')
            + "\n"
            + _rule(name='"s"', kind='"alias"', topic='"b"', real='"t"'),
            "rule 's', real: rule 'r' has t for the same clients",
        ),
    ],
)
def test_mistakes_are_reported_with_rule_and_key(text: str, message: str) -> None:
    with pytest.raises(RulesError) as error:
        parse(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ('"foo"', "'foo' is not an IP address or network, such as 10.0.0.0/8 or fd00::/8"),
        ('"10.0.0.0/33"', "'10.0.0.0/33' is not an IP address or network, such as 10.0.0.0/8 or fd00::/8"),
        ('"10.0.0.1/8"', "'10.0.0.1/8' has host bits set; the network is 10.0.0.0/8"),
        ('"fd00::1/8"', "'fd00::1/8' has host bits set; the network is fd00::/8"),
        ("10", "expected a network as text, such as 10.0.0.0/8"),
    ],
)
def test_an_invalid_network_is_one_mistake(network: str, reason: str) -> None:
    with pytest.raises(RulesError) as error:
        parse(_rule(kind='"deny"', **{"match.networks": f'["::1", {network}]'}))
    assert str(error.value) == f"rule 'r', match.networks.1: {reason}"


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(RulesError) as error:
        parse(_rule(kind='"limit"', messages="0") + "\n" + _rule(name='"s"', kind='"connections"', most="0"))
    assert len(str(error.value).splitlines()) == 2
