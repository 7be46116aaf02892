"""Names there and back, for every request and every message of the contract."""

import pytest
from google.protobuf.descriptor import Descriptor
from hypothesis import given
from hypothesis import strategies as st

from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Resource
from proxy.traffic_rules import json_bodies
from proxy.traffic_rules.grpc_resources import ResourceNames, steps
from proxy.traffic_rules.name_mapping import Foreign, Names
from proxy.traffic_rules.name_rewriting import FORMS, PUSHES
from remoting import fastjson
from remoting.errors import NotPermitted
from remoting.requests import REQUESTS, Direction

ACME = Names("acme")
ALIASED = Names("", (("bookings", "orders"),))
BOTH = Names("acme", (("bookings", "orders"), ("a", "b"), ("b", "a")))
_ALPHABET = "abcdefgAB019_-%|"
_names = st.text(_ALPHABET, min_size=1, max_size=20).filter(lambda name: not name.startswith("%"))
_groups = st.text(_ALPHABET.replace("_", ""), min_size=1, max_size=20).filter(lambda name: not name.startswith("%"))


@pytest.mark.parametrize(
    ("names", "shown", "real"),
    [
        (ACME, "orders", "acme%orders"),
        (ACME, "acme%orders", "acme%acme%orders"),
        (ACME, "%RETRY%g", "%RETRY%acme%g"),
        (ACME, "%DLQ%g", "%DLQ%acme%g"),
        (ACME, "%RETRY%g+orders", "%RETRY%acme%g+acme%orders"),
        (ACME, "TBW102", "TBW102"),
        (ACME, "DefaultCluster_REPLY_TOPIC", "DefaultCluster_REPLY_TOPIC"),
        (ALIASED, "bookings", "orders"),
        (ALIASED, "%RETRY%g+bookings", "%RETRY%g+orders"),
        (ALIASED, "%RETRY%bookings", "%RETRY%bookings"),
        (BOTH, "bookings", "acme%orders"),
        (BOTH, "a", "acme%b"),
        (BOTH, "b", "acme%a"),
    ],
)
def test_topics(names: Names, shown: str, real: str) -> None:
    assert names.topic(shown) == real
    assert names.shown_topic(real) == shown


def test_old_retry_topics_need_the_group() -> None:
    assert ACME.topic("%RETRY%g_orders", "g") == "%RETRY%acme%g_acme%orders"
    assert ACME.shown_topic("%RETRY%acme%g_acme%orders", "acme%g") == "%RETRY%g_orders"


@given(st.sampled_from([ACME, BOTH]), _names, _groups)
def test_there_and_back(names: Names, topic: str, group: str) -> None:
    try:
        real = names.topic(topic)
    except NotPermitted:
        assert topic in {"orders"}
        return
    assert names.shown_topic(real) == topic
    assert names.shown_group(names.group(group)) == group
    for separator in "_+":
        retry = f"%RETRY%{group}{separator}{topic}"
        assert names.shown_topic(names.topic(retry, group), names.group(group)) == retry


@given(_names)
def test_nobody_names_what_is_outside(topic: str) -> None:
    assert ACME.topic(topic).startswith("acme%")
    assert ACME.topic(f"%RETRY%{topic}").startswith("%RETRY%acme%")


def test_what_has_no_name_here() -> None:
    with pytest.raises(Foreign):
        ACME.shown_topic("umbrella%orders")
    with pytest.raises(Foreign):
        ACME.shown_group("g")
    with pytest.raises(NotPermitted):
        ALIASED.topic("orders")
    with pytest.raises(Foreign):
        ALIASED.shown_topic("bookings")
    assert ACME.shown_group("CLIENT_INNER_PRODUCER") == "CLIENT_INNER_PRODUCER"


def test_every_request_is_renamed_or_refused_on_purpose() -> None:
    tools = {spec.code for spec in REQUESTS.values() if spec.tool}
    clients = {spec.code for spec in REQUESTS.values() if spec.direction is not Direction.BROKER}
    # What only tools ask is not served to clients with names of their own.
    assert FORMS.keys() == clients - tools
    pushed = {spec.code for spec in REQUESTS.values() if spec.direction is not Direction.CLIENT}
    assert PUSHES.keys() == pushed


def test_bodies_in_fastjsons_dialect_stay_in_it() -> None:
    body = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"acme%orders"}:5},"n":{1:2}}'
    walk = json_bodies.Walk(ACME.shown_topic, ACME.shown_group)
    assert b'"topic":"orders"}:5' in json_bodies.renamed(body, walk)
    assert fastjson.loads(json_bodies.renamed(body, walk)) is not None


def _resources(descriptor: Descriptor, path: str = "") -> set[str]:
    """Where a message has resources, by a look at it that knows nothing of `steps`."""
    found = set()
    for field in descriptor.fields:
        inner = field.message_type
        if inner is None:
            continue
        if inner.full_name == Resource.DESCRIPTOR.full_name:
            found.add(f"{path}{field.name}")
        else:
            found |= _resources(inner, f"{path}{field.name}.")
    return found


def _reached(descriptor: Descriptor, path: str = "") -> set[str]:
    found = set()
    for step in steps(descriptor):
        inner = descriptor.fields_by_name[step.field].message_type
        assert inner is not None
        if inner.full_name == Resource.DESCRIPTOR.full_name:
            found.add(f"{path}{step.field}")
        else:
            found |= _reached(inner, f"{path}{step.field}.")
    return found


def test_every_resource_of_the_contract_is_reached() -> None:
    messages = set()
    for method in pb.DESCRIPTOR.services_by_name["MessagingService"].methods:
        messages |= {method.input_type, method.output_type}
    for message in messages:
        assert _reached(message) == _resources(message), message.full_name
    assert any(map(_resources, messages))


def test_names_that_are_equal_are_one() -> None:
    assert len({ResourceNames(Names("acme")), ResourceNames(Names("acme")), ResourceNames(Names("b"))}) == 2
