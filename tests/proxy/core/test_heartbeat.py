import orjson
import pytest

from proxy.core.client_registry import Groups
from proxy.core.heartbeat import MAX_GROUPS, MAX_HEARTBEAT_SIZE, MAX_SUBSCRIPTIONS, parse, without
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


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ({"consumeType": 0, "messageModel": 0, "consumeFromWhere": 0}, ("CONSUME_ACTIVELY", "BROADCASTING", "LAST")),
        ({"consumeType": 1, "messageModel": 1, "consumeFromWhere": 4}, ("CONSUME_PASSIVELY", "CLUSTERING", "FIRST")),
    ],
)
def test_parse_names_the_enums_that_cpp_clients_send_as_ordinals(data: dict[str, int], names: tuple[str, ...]) -> None:
    parsed = parse(orjson.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "g", **data}]}))
    consumer = parsed.consumers["g"]
    kind, model, start = names
    assert consumer.data == {
        "groupName": "g",
        "consumeType": kind,
        "messageModel": model,
        "consumeFromWhere": f"CONSUME_FROM_{start}_OFFSET",
    }
    assert consumer.broadcasting is (model == "BROADCASTING")


@pytest.mark.parametrize("value", [-1, 99, True, 1.0, "1", None, []])
def test_parse_keeps_other_values_of_enums(value: object) -> None:
    body = orjson.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "g", "messageModel": value}]})
    assert parse(body).consumers["g"].data["messageModel"] == value


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


def _nested(depth: int) -> bytes:
    """Return a heartbeat of so many levels."""
    return b'{"clientID":"c","odd":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize("depth", [101, 254])
def test_a_nested_heartbeat_can_be_encoded_again(depth: int) -> None:
    parse(_nested(depth))
    assert b'"producerDataSet":[]' in without(_nested(depth), Groups(consumers=frozenset("g")))


@pytest.mark.parametrize("depth", [255, 900, 1025, 100_000])
def test_a_heartbeat_that_is_nested_too_deeply_is_rejected(depth: int) -> None:
    with pytest.raises(BodyError, match=r"JSON|nested too deeply"):
        parse(_nested(depth))


def _heartbeat(groups: int = 0, subscriptions: int = 0, *, producers: int = 0) -> dict[str, object]:
    """Return a heartbeat of consumers with so many subscriptions each, in one list, and producers."""
    shared = [{"topic": f"t{number}"} for number in range(subscriptions)]
    consumers: list[dict[str, object]] = [{"groupName": f"g{number}"} for number in range(groups)]
    for consumer in consumers:
        consumer["subscriptionDataSet"] = {"$ref": "$.consumerDataSet[0].subscriptionDataSet"}
    if consumers:
        consumers[0]["subscriptionDataSet"] = shared
    names = [{"groupName": f"p{number}"} for number in range(producers)]
    return {"clientID": "c", "consumerDataSet": consumers, "producerDataSet": names}


def test_a_heartbeat_at_the_limits_is_accepted() -> None:
    beat = parse(orjson.dumps(_heartbeat(400, 10, producers=600)))
    assert len(beat.groups.consumers) + len(beat.groups.producers) == MAX_GROUPS
    assert len(parse(orjson.dumps(_heartbeat(1, MAX_SUBSCRIPTIONS))).topics) == MAX_SUBSCRIPTIONS
    assert len(parse(orjson.dumps(_heartbeat(2, MAX_SUBSCRIPTIONS // 2))).topics) == MAX_SUBSCRIPTIONS // 2
    name = {"clientID": "c" * 262, "producerDataSet": [{"groupName": "g" * 255}]}
    parse(orjson.dumps(name))
    body = orjson.dumps({"clientID": "c"})
    assert not parse(body + b" " * (MAX_HEARTBEAT_SIZE - len(body))).groups


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b" " * (MAX_HEARTBEAT_SIZE + 1), f"a heartbeat of {MAX_HEARTBEAT_SIZE + 1} bytes is over the limit"),
        (orjson.dumps(_heartbeat(400, producers=601)), "1001 groups .* over the limit of 1000"),
        (orjson.dumps(_heartbeat(1, MAX_SUBSCRIPTIONS + 1)), "4097 subscriptions .* over the limit of 4096"),
        (orjson.dumps(_heartbeat(3, 1366)), "4098 subscriptions"),
        (orjson.dumps(_heartbeat(1000, 2000)), "references make the document too large"),
        (orjson.dumps({"clientID": "c" * 263}), "clientID of 263 characters is over the limit of 262"),
        (
            orjson.dumps({"clientID": "c", "producerDataSet": [{"groupName": "g" * 256}]}),
            "groupName of 256 characters is over the limit of 255",
        ),
        (
            orjson.dumps(
                {
                    "clientID": "c",
                    "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "t" * 263}]}],
                }
            ),
            "topic of 263 characters is over the limit of 262",
        ),
    ],
)
def test_a_heartbeat_over_a_limit_is_rejected(body: bytes, remark: str) -> None:
    with pytest.raises(BodyError, match=remark):
        parse(body)
