from typing import Any

import orjson
import pytest

from remoting import fastjson
from remoting.errors import BodyError
from remoting.routes import Replicas, encode, merge_clusters, parse, parse_cluster

ROUTE = {
    "orderTopicConf": "broker-a:4",
    "queueDatas": [
        {"brokerName": "broker-b", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0},
        {"brokerName": "broker-a", "readQueueNums": 0, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0},
    ],
    "brokerDatas": [
        {
            "cluster": "c",
            "brokerName": "broker-b",
            "brokerAddrs": {"0": "10.0.0.2:10911", "1": "10.0.0.3:10911"},
            "enableActingMaster": True,
            "zoneName": "z",
        },
        {"cluster": "c", "brokerName": "broker-a", "brokerAddrs": {"2": "10.0.0.1:10911"}},
    ],
    "filterServerTable": {"10.0.0.2:10911": []},
    "topicQueueMappingByBroker": {"broker-a": {"topic": "t", "totalQueues": 8, "currIdMap": {"0": 0}}},
    "somethingNewer": [1, "ü"],
}
STANDARD = orjson.dumps(ROUTE)
DIALECT = STANDARD.replace(b'{"0":"10', b'{0:"10').replace(b',"1":"10', b',1:"10').replace(b'{"2":"10', b'{2:"10')


def address_of(broker: str) -> str:
    return f"proxy-for-{broker}:8080"


@pytest.mark.parametrize("body", [STANDARD, DIALECT], ids=["standard", "dialect"])
def test_parse_reads_standard_json_and_fastjson(body: bytes) -> None:
    route = parse("t", body)
    assert route.brokers == ("broker-a", "broker-b")
    assert route.readable() == ("broker-b",)
    assert route.data["brokerDatas"][0]["brokerAddrs"] == {0: "10.0.0.2:10911", 1: "10.0.0.3:10911"}


@pytest.mark.parametrize("body", [STANDARD, DIALECT], ids=["standard", "dialect"])
def test_encode_replaces_only_the_addresses(body: bytes) -> None:
    expected: dict[str, Any] = orjson.loads(STANDARD)
    expected["brokerDatas"][0]["brokerAddrs"] = {"0": "proxy-for-broker-b:8080", "1": "proxy-for-broker-b:8080"}
    expected["brokerDatas"][1]["brokerAddrs"] = {"2": "proxy-for-broker-a:8080"}
    assert orjson.loads(encode(parse("t", body), address_of, standard_json=True)) == expected


def test_encode_for_old_clients_writes_broker_ids_as_numbers() -> None:
    body = encode(parse("t", STANDARD), address_of, standard_json=False)
    assert b'"brokerAddrs":{0:"proxy-for-broker-b:8080",1:"proxy-for-broker-b:8080"}' in body
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(body)
    assert parse("t", body).brokers == ("broker-a", "broker-b")
    assert fastjson.loads(body)["somethingNewer"] == [1, "ü"]


def test_encode_does_not_change_the_route() -> None:
    route = parse("t", STANDARD)
    before = orjson.dumps(route.data, option=orjson.OPT_NON_STR_KEYS)
    encode(route, address_of, True)
    encode(route, address_of, False)
    assert orjson.dumps(route.data, option=orjson.OPT_NON_STR_KEYS) == before


@pytest.mark.parametrize("body", [b"{}", b'{"queueDatas":null,"brokerDatas":null}'])
def test_parse_accepts_an_empty_route(body: bytes) -> None:
    route = parse("t", body)
    assert (route.brokers, route.readable()) == ((), ())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"brokerDatas":[{}]}',
        b'{"brokerDatas":[5]}',
        b'{"brokerDatas":7}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"x":"a:1"}}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":null}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":[]}]}',
    ],
)
def test_an_invalid_route_is_a_body_error(body: bytes) -> None:
    with pytest.raises(BodyError):
        parse("t", body)


def cluster(**brokers: dict[str, Any]) -> bytes:
    table = {name.replace("_", "-"): {"cluster": "c", "brokerName": name, **data} for name, data in brokers.items()}
    return orjson.dumps({"brokerAddrTable": table, "clusterAddrTable": {"c": list(table)}})


def test_parse_cluster_returns_brokers_by_name() -> None:
    table = parse_cluster(
        cluster(a={"brokerAddrs": {"0": "a:1", "2": "a2:1", "1": "a1:1"}, "enableActingMaster": True})
    )
    assert table == {"a": Replicas("a", "c", {0: "a:1", 2: "a2:1", 1: "a1:1"}, acting_master=True)}
    assert (table["a"].master, table["a"].slaves) == ("a:1", ["a1:1", "a2:1"])


@pytest.mark.parametrize("body", [b"{}", b'{"brokerAddrTable":null}'])
def test_parse_cluster_accepts_an_empty_cluster(body: bytes) -> None:
    assert parse_cluster(body) == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"brokerAddrTable":[1]}',
        b'{"brokerAddrTable":{"a":1}}',
        cluster(a={}),
        cluster(a={"brokerAddrs": 1}),
    ],
)
def test_an_invalid_cluster_is_a_body_error(body: bytes) -> None:
    with pytest.raises(BodyError):
        parse_cluster(body)


@pytest.mark.parametrize(
    ("views", "merged"),
    [
        ([], {}),
        ([{0: "m"}], {0: "m"}),
        ([{0: "m"}, {0: "m"}], {0: "m"}),
        ([{0: "m"}, {1: "s"}], {0: "m", 1: "s"}),
        ([{}, {0: "m"}], {0: "m"}),
        ([{0: "m"}, {0: "other"}], {0: "m"}),
        # After a failover, a stale view has the new master as a slave.
        ([{0: "new"}, {0: "old", 1: "new"}], {0: "new"}),
        ([{0: "old", 1: "new"}, {0: "new"}], {0: "old", 1: "new"}),
    ],
)
def test_merge_clusters_prefers_the_first_view_of_an_address(
    views: list[dict[int, str]], merged: dict[int, str]
) -> None:
    table = merge_clusters({"a": Replicas("a", "c", addresses)} for addresses in views)
    assert {name: replicas.addresses for name, replicas in table.items()} == ({"a": merged} if views else {})


def test_merge_clusters_includes_brokers_of_any_name_server() -> None:
    a, b = Replicas("a", "c", {0: "a:1"}), Replicas("b", "c", {0: "b:1"})
    assert merge_clusters([{"a": a}, {}, {"b": b}]) == {"a": a, "b": b}


def test_merge_clusters_takes_acting_master_from_any_name_server() -> None:
    plain, acting = Replicas("a", "c", {1: "s"}), Replicas("a", "c", {1: "s"}, acting_master=True)
    assert merge_clusters([{"a": plain}, {"a": acting}])["a"].acting_master


@pytest.mark.parametrize(
    ("count", "queues"),
    [(8, 8), ("8", 8), (65_536, 65_536), (65_537, 65_536), (2**31 - 1, 65_536), ("9" * 5000, 65_536)],
)
def test_the_number_of_queues_is_bounded(count: object, queues: int) -> None:
    """Requests of gRPC clients list each queue; a topic's number is that of whoever has created it."""
    queue = {"brokerName": "broker-b", "readQueueNums": count, "writeQueueNums": count, "perm": 6}
    route = parse("t", orjson.dumps({**ROUTE, "queueDatas": [queue], "orderTopicConf": None}))
    assert (route.queues[0].read, len(route.writable)) == (queues, queues)
    ordered = parse("t", orjson.dumps({**ROUTE, "orderTopicConf": f"broker-b:{count}"}))
    assert len(ordered.writable) == queues


@pytest.mark.parametrize("count", [-1, "x", None, 1.5, "\u0661"])
def test_a_number_of_queues_that_is_none_is_a_body_error(count: object) -> None:
    queue = {"brokerName": "broker-b", "readQueueNums": count, "writeQueueNums": 1, "perm": 6}
    with pytest.raises(BodyError):
        _ = parse("t", orjson.dumps({**ROUTE, "queueDatas": [queue]})).queues
