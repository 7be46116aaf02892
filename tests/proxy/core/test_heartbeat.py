import orjson
import pytest

from proxy.core.client_registry import Groups
from proxy.core.heartbeat import parse, without
from remoting.errors import BodyError
from tests.proxy.messages import heartbeat


def test_parse_returns_client_id_groups_and_topics() -> None:
    beat = parse(heartbeat("c1", {"g": ["orders", "%RETRY%g"], "h": ["orders"]}, ["p"]).body)
    assert beat.client_id == "c1"
    assert beat.groups == Groups(frozenset("p"), frozenset("gh"))
    assert beat.topics == {"orders", "%RETRY%g"}
    assert not beat.consumers["g"].broadcasting
    assert parse(heartbeat(consumers={"g": []}, model="BROADCASTING").body).consumers["g"].broadcasting


@pytest.mark.parametrize(
    "body", [b'{"clientID":"c"}', b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[]}', b"{clientID:'c'}"]
)
def test_parse_accepts_a_heartbeat_without_groups(body: bytes) -> None:
    assert not parse(body).groups


@pytest.mark.parametrize(
    ("data", "remark"),
    [
        ([], "not a JSON object"),
        ({}, "no clientID"),
        ({"clientID": ""}, "no clientID"),
        ({"clientID": 7}, "no clientID"),
        ({"clientID": "c", "consumerDataSet": {}, "producerDataSet": 5}, "producerDataSet is not a list"),
        ({"clientID": "c", "consumerDataSet": [5]}, "consumerDataSet is not a list of objects"),
        ({"clientID": "c", "consumerDataSet": [{}]}, "without a groupName"),
        ({"clientID": "c", "producerDataSet": [{"groupName": ""}]}, "without a groupName"),
        (
            {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": "t"}]},
            "subscriptionDataSet is not a list",
        ),
    ],
)
def test_parse_rejects_invalid_fields_by_name(data: object, remark: str) -> None:
    with pytest.raises(BodyError, match=remark):
        parse(orjson.dumps(data))


def test_without_removes_groups() -> None:
    body = heartbeat("c1", {"g": ["orders"], "h": ["bills"]}, ["p", "q"]).body
    left = without(body, Groups(frozenset("p"), frozenset("g")))
    data, before = orjson.loads(left), orjson.loads(body)
    assert data == {
        **before,
        "producerDataSet": before["producerDataSet"][1:],
        "consumerDataSet": before["consumerDataSet"][1:],
    }
    assert parse(left).topics == {"bills"}
    assert parse(without(left, Groups(frozenset("q"), frozenset("h")))).groups == Groups()


def test_without_distinguishes_producer_and_consumer_groups_of_one_name() -> None:
    body = heartbeat("c1", {"g": ["orders"]}, ["g"]).body
    assert parse(without(body, Groups(producers=frozenset("g")))).groups == Groups(consumers=frozenset("g"))


def test_without_preserves_fastjson_maps_with_object_keys() -> None:
    body = b'{"clientID":"c","odd":{{"queueId":1}:2},"consumerDataSet":[{"groupName":"g"},{"groupName":"h"}]}'
    left = b'{"clientID":"c","odd":{{"queueId":1}:2},"consumerDataSet":[{"groupName":"h"}],"producerDataSet":[]}'
    assert without(body, Groups(consumers=frozenset("g"))) == left


@pytest.mark.parametrize(("depth", "left"), [(300, b'"consumerDataSet":[]'), (900, b'"groupName":"g"')])
def test_without_returns_a_deeply_nested_body_unchanged(depth: int, left: bytes) -> None:
    body = b'{"clientID":"c","odd":' + b"[" * depth + b"]" * depth + b',"consumerDataSet":[{"groupName":"g"}]}'
    assert left in without(body, Groups(consumers=frozenset("g")))
