"""Which findings are one incident: consequences of a silence, a refusal or a surge, and parts of one cause."""

from dataclasses import replace

import pytest

from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.merging import incidents

_HOUR = 3600.0


def _finding(kind: str, start: float, end: float, **about: str) -> Finding:
    """Return a finding about the first of the attributes; the others are common to its requests."""
    facts = {"response": "1", "backlog": "5", "size": "9 KiB", "usual": "1 KiB", "scope": next(iter(about), "")}
    return Finding(Kind(kind), start * _HOUR, end * _HOUR, about, 0.5, 0.1, 50.0, 200.0, 1, False, facts)


def test_the_only_group_of_a_range_says_more_than_the_range() -> None:
    silence = _finding("network_silence", 1, 5, network="10.1.2.0/24")
    stop = _finding("consumer_stopped", 1, 5, group="acme%g", topic="acme%a")
    (incident,) = incidents([silence, stop], 1e6)
    assert (incident.kind, dict(incident.about)) == ("consumer_stopped", dict(stop.about))


def test_a_range_with_several_groups_is_the_cause() -> None:
    stops = [_finding("consumer_stopped", 1, 5, group=f"acme%{name}", topic="acme%a") for name in "gh"]
    (incident,) = incidents([_finding("network_silence", 1, 5, network="10.1.2.0/24"), *stops], 1e6)
    assert incident.kind == "network_silence"


@pytest.mark.parametrize(("response", "kinds"), [("2 (system busy)", 1), ("1 (system error)", 2)])
def test_too_many_requests_are_part_of_a_busy_service(response: str, kinds: int) -> None:
    facts = {"response": response, "scope": ""}
    whole = replace(_finding("error_growth", 1, 5), facts=facts)
    part = _finding("throttling", 2, 5, network="10.1.2.0/24")
    found = incidents([whole, part], 1e6)
    assert len(found) == kinds
    assert (found[0].kind, dict(found[0].about)) == ("error_growth", {})


@pytest.mark.parametrize(
    ("topic", "begin", "kinds"),
    [
        ("acme%a", 1.0, ["credentials"]),
        ("acme%b", 1.0, ["credentials", "traffic_surge"]),
        ("acme%a", 0.0, ["traffic_surge", "credentials"]),
    ],
)
def test_refused_sends_that_are_sent_again_are_no_surge(topic: str, begin: float, kinds: list[str]) -> None:
    refused = _finding("credentials", 1, 3, network="10.1.2.0/24", group="acme%g", topic="acme%a", tenant="acme")
    surge = _finding("traffic_surge", begin, 3, topic=topic)
    assert [each.kind for each in incidents([refused, surge], 1e6)] == kinds


@pytest.mark.parametrize(
    ("topic", "kinds"), [("acme%b", ["throttling"]), ("dunlin%b", ["throttling", "traffic_surge"])]
)
def test_a_topic_of_a_throttled_tenant_has_no_surge_of_its_own(topic: str, kinds: list[str]) -> None:
    throttled = _finding("throttling", 1, 3, tenant="acme", topic="acme%a")
    assert [each.kind for each in incidents([throttled, _finding("traffic_surge", 1, 2, topic=topic)], 1e6)] == kinds


@pytest.mark.parametrize(("begin", "kinds"), [(1.2, ["traffic_surge"]), (2.5, ["traffic_surge", "queue_stopped"])])
def test_a_group_behind_a_tenants_surge_is_part_of_it(begin: float, kinds: list[str]) -> None:
    surge = _finding("traffic_surge", 1, 2, tenant="acme")
    about = {"group": "acme%g", "topic": "acme%a", "queue": "1", "broker": "b"}
    stop = _finding("queue_stopped", begin, begin + 1, **about)
    assert [each.kind for each in incidents([surge, stop], 1e6)] == kinds


def test_two_tenants_at_one_time_are_two_incidents() -> None:
    """The tenant of names without a namespace is called default."""
    throttled = _finding("throttling", 1, 3, tenant="default")
    assert len(incidents([throttled, _finding("traffic_surge", 1, 2, tenant="acme")], 1e6)) == 2


def _of_group(kind: str, start: float, end: float) -> Finding:
    """Return a finding about a group of acme%a, made by group and topic."""
    finding = _finding(kind, start, end, group="acme%g", topic="acme%a")
    return replace(finding, facts={**finding.facts, "scope": "group+topic"})


@pytest.mark.parametrize(
    ("kind", "begin", "kinds"),
    [
        ("large_messages", 1.2, ["large_messages"]),
        ("large_messages", 3.0, ["large_messages", "consumer_lagging"]),
        ("large_messages", 0.0, ["consumer_lagging", "large_messages"]),
        # A group falls behind when its topic has grown for hours.
        ("traffic_growth", 3.0, ["traffic_growth"]),
    ],
)
def test_a_topic_explains_its_groups_troubles_of_the_same_onset(kind: str, begin: float, kinds: list[str]) -> None:
    found = incidents([_finding(kind, 1, 8, topic="acme%a"), _of_group("consumer_lagging", begin, 8)], 1e6)
    assert [each.kind for each in found] == kinds


@pytest.mark.parametrize(("name", "count"), [("client", 1), ("group", 2)])
def test_a_topics_client_may_have_trouble_before_or_after_the_topic(name: str, count: int) -> None:
    """A group's trouble of another onset has another cause."""
    narrow = _finding("duplicate_sends", 3, 8, **{name: "acme%one", "topic": "acme%a"})
    assert len(incidents([_finding("large_messages", 1, 8, topic="acme%a"), narrow], 1e6)) == count


def test_a_limit_that_rejects_all_is_one_incident() -> None:
    parts = [_finding("throttling", 1, 1.2, tenant="acme"), _finding("throttling", 1, 1.1, group="dunlin%g")]
    (incident,) = incidents([*parts, _finding("throttling", 1, 1.2)], 1e6)
    assert (incident.kind, dict(incident.about)) == ("throttling", {})


@pytest.mark.parametrize(("begin", "end", "count"), [(1.2, 1.5, 1), (2.0, 2.5, 2), (1.2, 6.0, 2)])
def test_the_herd_after_a_silence_of_the_service_is_its_consequence(begin: float, end: float, count: int) -> None:
    """A limit that rejects requests later, or for hours, has another cause."""
    herd = [_finding("throttling", begin, end, tenant="acme")]
    assert len(incidents([_finding("service_silence", 1, 1.2), *herd], 1e6)) == count


@pytest.mark.parametrize(
    ("name", "value", "cut_off", "count"),
    [
        ("network", "10.1.2.0/24", "10.1.2.0/24", 1),
        ("network", "10.1.3.0/24", "10.1.2.0/24", 2),
        ("replica", "edge-1", "edge-1", 1),
        ("replica", "edge-0", "edge-1", 2),
    ],
)
def test_connections_that_end_when_their_range_or_replica_is_cut_off_are_part_of_it(
    name: str, value: str, cut_off: str, count: int
) -> None:
    storm = replace(_finding("connection_storm", 1, 1.1, **{name: value}), facts={"scope": name, "cause": "lost"})
    assert len(incidents([_finding(f"{name}_silence", 1, 4, **{name: cut_off}), storm], 1e6)) == count


@pytest.mark.parametrize(("client", "count"), [("10.1.2.3@9#2", 1), ("10.1.2.4@9#2", 2)])
def test_a_wrong_clock_remains_one_incident_when_its_client_is_deployed(client: str, count: int) -> None:
    before = _finding("client_clock", 1, 4, client="10.1.2.3@7#1", network="10.1.2.0/24")
    assert len(incidents([before, _finding("client_clock", 4, 8, client=client, network="10.1.2.0/24")], 1e6)) == count


@pytest.mark.parametrize(("end", "count"), [(3.0, 1), (1.2, 2)])
def test_a_surge_while_sends_to_a_broker_fail_is_their_repetition(end: float, count: int) -> None:
    """Another broker gets what the first one does not store; a surge that goes on has another cause."""
    fault = _finding("broker_fault", 1, end, broker="b")
    assert len(incidents([fault, _finding("traffic_surge", 1.1, 2.5, topic="acme%a")], 1e6)) == count


@pytest.mark.parametrize(("network", "count"), [("10.1.2.0/24", 1), ("10.1.3.0/24", 2)])
def test_clients_that_connect_again_and_again_and_are_lost_are_one_incident(network: str, count: int) -> None:
    churn = _finding("connection_churn", 1, 3, network="10.1.2.0/24")
    storm = replace(_finding("connection_storm", 1, 3, network=network), facts={"scope": "network", "cause": "lost"})
    assert len(incidents([churn, storm], 1e6)) == count
