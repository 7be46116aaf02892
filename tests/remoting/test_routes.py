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


def told(broker: str) -> str:
    return f"proxy-for-{broker}:8080"


@pytest.mark.parametrize("body", [STANDARD, DIALECT], ids=["standard", "dialect"])
def test_a_route_is_read_in_either_dialect(body: bytes) -> None:
    route = parse("t", body)
    assert route.brokers == ("broker-a", "broker-b")
    assert route.readable() == ("broker-b",)
    assert route.data["brokerDatas"][0]["brokerAddrs"] == {0: "10.0.0.2:10911", 1: "10.0.0.3:10911"}


@pytest.mark.parametrize("body", [STANDARD, DIALECT], ids=["standard", "dialect"])
def test_only_the_addresses_are_replaced(body: bytes) -> None:
    expected: dict[str, Any] = orjson.loads(STANDARD)
    expected["brokerDatas"][0]["brokerAddrs"] = {"0": "proxy-for-broker-b:8080", "1": "proxy-for-broker-b:8080"}
    expected["brokerDatas"][1]["brokerAddrs"] = {"2": "proxy-for-broker-a:8080"}
    assert orjson.loads(encode(parse("t", body), told, standard_json=True)) == expected


def test_old_clients_get_the_ids_as_numbers() -> None:
    body = encode(parse("t", STANDARD), told, standard_json=False)
    assert b'"brokerAddrs":{0:"proxy-for-broker-b:8080",1:"proxy-for-broker-b:8080"}' in body
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(body)
    assert parse("t", body).brokers == ("broker-a", "broker-b")
    assert fastjson.loads(body)["somethingNewer"] == [1, "ü"]


def test_the_route_itself_is_not_changed() -> None:
    route = parse("t", STANDARD)
    before = orjson.dumps(route.data, option=orjson.OPT_NON_STR_KEYS)
    encode(route, told, True)
    encode(route, told, False)
    assert orjson.dumps(route.data, option=orjson.OPT_NON_STR_KEYS) == before


@pytest.mark.parametrize("body", [b"{}", b'{"queueDatas":null,"brokerDatas":null}'])
def test_a_route_may_be_empty(body: bytes) -> None:
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
def test_what_is_no_route_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        parse("t", body)


def cluster(**brokers: dict[str, Any]) -> bytes:
    table = {name.replace("_", "-"): {"cluster": "c", "brokerName": name, **data} for name, data in brokers.items()}
    return orjson.dumps({"brokerAddrTable": table, "clusterAddrTable": {"c": list(table)}})


def test_a_clusters_brokers_are_read() -> None:
    table = parse_cluster(
        cluster(a={"brokerAddrs": {"0": "a:1", "2": "a2:1", "1": "a1:1"}, "enableActingMaster": True})
    )
    assert table == {"a": Replicas("a", "c", {0: "a:1", 2: "a2:1", 1: "a1:1"}, acting_master=True)}
    assert (table["a"].master, table["a"].slaves) == ("a:1", ["a1:1", "a2:1"])


@pytest.mark.parametrize("body", [b"{}", b'{"brokerAddrTable":null}'])
def test_a_cluster_may_be_empty(body: bytes) -> None:
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
def test_what_is_no_cluster_is_refused(body: bytes) -> None:
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
        # After a failover the stale view still has the new master as a slave.
        ([{0: "new"}, {0: "old", 1: "new"}], {0: "new"}),
        ([{0: "old", 1: "new"}, {0: "new"}], {0: "old", 1: "new"}),
    ],
)
def test_name_servers_that_disagree(views: list[dict[int, str]], merged: dict[int, str]) -> None:
    table = merge_clusters({"a": Replicas("a", "c", addresses)} for addresses in views)
    assert {name: replicas.addresses for name, replicas in table.items()} == ({"a": merged} if views else {})


def test_a_broker_that_any_name_server_knows_is_known() -> None:
    a, b = Replicas("a", "c", {0: "a:1"}), Replicas("b", "c", {0: "b:1"})
    assert merge_clusters([{"a": a}, {}, {"b": b}]) == {"a": a, "b": b}


def test_one_name_server_is_enough_to_know_that_slaves_act_as_master() -> None:
    plain, acting = Replicas("a", "c", {1: "s"}), Replicas("a", "c", {1: "s"}, acting_master=True)
    assert merge_clusters([{"a": plain}, {"a": acting}])["a"].acting_master
