"""Name mappings in both directions, for every request and every message of the v2 contract."""

import pytest
from google.protobuf.descriptor import Descriptor
from hypothesis import given
from hypothesis import strategies as st

from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Resource
from proxy.traffic_rules.grpc_resources import ResourceNames, steps
from proxy.traffic_rules.name_mapping import ForeignName, NameMapping
from proxy.traffic_rules.name_rewriting import BODY_FORMATS, PUSH_BODY_FORMATS
from remoting import fastjson
from remoting import json_names as json_bodies
from remoting.errors import NotPermitted
from remoting.requests import REQUESTS, Direction

ACME = NameMapping("acme")
ALIASED = NameMapping("", (("bookings", "orders"),))
BOTH = NameMapping("acme", (("bookings", "orders"), ("a", "b"), ("b", "a")))
_ALPHABET = "abcdefgAB019_-%|"
_names = st.text(_ALPHABET, min_size=1, max_size=20).filter(lambda name: not name.startswith("%"))
_groups = st.text(_ALPHABET.replace("_", ""), min_size=1, max_size=20).filter(lambda name: not name.startswith("%"))


@pytest.mark.parametrize(
    ("names", "client_name", "broker_name"),
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
def test_topics_map_in_both_directions(names: NameMapping, client_name: str, broker_name: str) -> None:
    assert names.broker_topic(client_name) == broker_name
    assert names.client_topic(broker_name) == client_name


def test_old_retry_topics_are_split_by_the_group() -> None:
    assert ACME.broker_topic("%RETRY%g_orders", "g") == "%RETRY%acme%g_acme%orders"
    assert ACME.client_topic("%RETRY%acme%g_acme%orders", "acme%g") == "%RETRY%g_orders"


@given(st.sampled_from([ACME, BOTH]), _names, _groups)
def test_names_round_trip(names: NameMapping, topic: str, group: str) -> None:
    try:
        real = names.broker_topic(topic)
    except NotPermitted:
        assert topic in {"orders"}
        return
    assert names.client_topic(real) == topic
    assert names.client_group(names.broker_group(group)) == group
    for separator in "_+":
        retry = f"%RETRY%{group}{separator}{topic}"
        assert names.client_topic(names.broker_topic(retry, group), names.broker_group(group)) == retry


@given(_names)
def test_clients_cannot_address_topics_outside_their_namespace(topic: str) -> None:
    assert ACME.broker_topic(topic).startswith("acme%")
    assert ACME.broker_topic(f"%RETRY%{topic}").startswith("%RETRY%acme%")


@pytest.mark.parametrize(
    ("names", "text", "expected"),
    [
        (ACME, "topic acme%orders, group acme%g", "topic orders, group g"),
        (ALIASED, "topic orders has 1 queues", "topic bookings has 1 queues"),
        (ALIASED, "the topic[orders] of %RETRY%g+orders.", "the topic[bookings] of %RETRY%g+bookings."),
        (ALIASED, "orders-2 orders_2 my-orders %RETRY%orders", "orders-2 orders_2 my-orders %RETRY%orders"),
        (ALIASED, "consumer group orders is unknown", "consumer group orders is unknown"),
        (BOTH, "acme%orders, acme%a, acme%b", "bookings, b, a"),
        (NameMapping("", (("x", "a-b"), ("y", "a"))), "a-b a", "x y"),
    ],
)
def test_texts_have_the_clients_names(names: NameMapping, text: str, expected: str) -> None:
    assert names.client_text(text) == expected


def test_names_without_a_counterpart_raise() -> None:
    with pytest.raises(ForeignName):
        ACME.client_topic("umbrella%orders")
    with pytest.raises(ForeignName):
        ACME.client_group("g")
    with pytest.raises(NotPermitted):
        ALIASED.broker_topic("orders")
    with pytest.raises(ForeignName):
        ALIASED.client_topic("bookings")
    assert ACME.client_group("CLIENT_INNER_PRODUCER") == "CLIENT_INNER_PRODUCER"


def test_every_request_code_of_clients_has_body_formats() -> None:
    tools = {spec.code for spec in REQUESTS.values() if spec.tool and spec.direction is Direction.CLIENT}
    clients = {spec.code for spec in REQUESTS.values() if spec.direction is not Direction.BROKER}
    # Of tools' requests, clients with a name mapping may only send those to other clients.
    assert BODY_FORMATS.keys() == clients - tools
    pushed = {spec.code for spec in REQUESTS.values() if spec.direction is not Direction.CLIENT}
    assert PUSH_BODY_FORMATS.keys() == pushed


def test_bodies_in_fastjsons_dialect_keep_it() -> None:
    body = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"acme%orders"}:5},"n":{1:2}}'
    replacer = json_bodies.NameReplacer(ACME.client_topic, ACME.client_group)
    assert b'"topic":"orders"}:5' in json_bodies.replace_names(body, replacer)
    assert fastjson.loads(json_bodies.replace_names(body, replacer)) is not None


def _resource_paths(descriptor: Descriptor, path: str = "") -> set[str]:
    """Return the paths of a message's resources, found without `steps`."""
    paths = set()
    for field in descriptor.fields:
        nested = field.message_type
        if nested is None:
            continue
        if nested.full_name == Resource.DESCRIPTOR.full_name:
            paths.add(f"{path}{field.name}")
        else:
            paths |= _resource_paths(nested, f"{path}{field.name}.")
    return paths


def _paths_by_steps(descriptor: Descriptor, path: str = "") -> set[str]:
    paths = set()
    for step in steps(descriptor):
        nested = descriptor.fields_by_name[step.field].message_type
        assert nested is not None
        if nested.full_name == Resource.DESCRIPTOR.full_name:
            paths.add(f"{path}{step.field}")
        else:
            paths |= _paths_by_steps(nested, f"{path}{step.field}.")
    return paths


def test_steps_reach_every_resource_of_the_contract() -> None:
    messages = set()
    for method in pb.DESCRIPTOR.services_by_name["MessagingService"].methods:
        messages |= {method.input_type, method.output_type}
    for message in messages:
        assert _paths_by_steps(message) == _resource_paths(message), message.full_name
    assert any(map(_resource_paths, messages))


def test_equal_name_mappings_have_equal_hashes() -> None:
    assert (
        len({ResourceNames(NameMapping("acme")), ResourceNames(NameMapping("acme")), ResourceNames(NameMapping("b"))})
        == 2
    )
