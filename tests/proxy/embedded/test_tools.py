"""Requests of tools, and of clients to name servers."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.embedded.broker import consumer_progress, message_lookup
from proxy.embedded.broker.dispatch import BROKER, NAME_SERVER
from remoting import command as commands
from remoting import fastjson, messages, routes
from remoting.codes import RequestCode, ResponseCode, ToolCode
from remoting.errors import ConnectionLost, RemotingError, RequestTimeout, UnsupportedRequest
from remoting.fastjson import ObjectKeys
from remoting.requests import REQUESTS, Direction
from tests.cluster.client import queue_fields, send_fields, strings, v2
from tests.proxy.embedded.broker_harness import BrokerHarness

pytestmark = pytest.mark.anyio


_DAY = 24 * 60 * 60 * 1000

# Lite topics are new in RocketMQ 5.5; earlier brokers do not support them either.
_LITE = {RequestCode.POP_LITE_MESSAGE, RequestCode.LITE_SUBSCRIPTION_CTL}


def test_every_request_of_the_table_is_served() -> None:
    codes = {code for code, spec in REQUESTS.items() if spec.direction is not Direction.BROKER}
    assert codes - (BROKER.keys() | NAME_SERVER.keys()) == _LITE


@pytest.mark.parametrize("code", sorted(BROKER | NAME_SERVER))
async def test_every_request_without_its_fields_is_rejected_clearly(harness: BrokerHarness, code: int) -> None:
    for body in (b"", b"{}", b"[]", b"\xff"):
        reply = harness.ask(code, {}, body)
        assert reply.code in set(ResponseCode)
        assert reply.remark != "internal error"


_FIELDS = sorted({name for spec in REQUESTS.values() for name in spec.required} | {*"abcdefghijklmn", "group"})
_VALUES = ("", "x", "0", "1", "-1", "9" * 24, "t", "g", "TBW102", "true", "\x01\x02", "DELAY\x01x\x02", "8", "a >")
_BODIES = (
    b"",
    b"x",
    b"{}",
    b'{"a":[]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":7}]}',
    b'{"groupName":"g","retryMaxTimes":"x"}',
)


def _sound() -> dict[str, object]:
    """Return a plausible value for each field."""
    fields: dict[str, object] = dict.fromkeys(_FIELDS, "0")
    fields |= {name: "g" for name in _FIELDS if "roup" in name} | {"topic": "t", "clientID": "c", "clientId": "c"}
    fields |= v2(send_fields("t")) | send_fields("t")
    return fields | {"extraInfo": "0 1 1 0 0 broker-a 0 0", "pollTime": "0", "group": "g"}


_CHANGES = st.dictionaries(st.sampled_from(_FIELDS), st.sampled_from(_VALUES), max_size=3)


@given(st.sampled_from(sorted(BROKER | NAME_SERVER)), _CHANGES, st.sampled_from(_BODIES))
async def test_garbage_causes_no_internal_error(code: int, changes: dict[str, str], body: bytes) -> None:
    harness = BrokerHarness()
    harness.topic("t")
    harness.send("t")
    harness.join({"g": ["t"]})
    reply = harness.begin(code, {**_sound(), **changes}, body)
    if reply.done():
        assert reply.result().remark != "internal error"


async def test_routes_are_encoded_in_both_json_dialects(harness: BrokerHarness) -> None:
    harness.topic("t", queues=3)
    new = routes.parse("t", harness.get(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}).body)
    assert (new.brokers, new.queues[0].write) == (("broker-a",), 3)
    command = commands.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"})
    command.header["version"] = 300
    reply = harness.broker.handle(harness.client, command, harness.now)
    assert reply is not None
    assert b'{0:"127.0.0.1:10911"}' in reply.result().body
    absent = harness.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "absent"})
    assert absent.code == ResponseCode.TOPIC_NOT_EXIST
    cluster = routes.parse_cluster(harness.get(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert cluster["broker-a"].master == "127.0.0.1:10911"


async def test_topics_are_created_changed_and_deleted(harness: BrokerHarness) -> None:
    harness.topic("t", queues=4, attributes="+message.type=FIFO")
    harness.topic("t", queues=8, attributes="+cleanup.policy=DELETE,-message.type")
    config = orjson.loads(harness.get(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"}).body)
    assert (config["readQueueNums"], config["attributes"]) == (8, {"cleanup.policy": "DELETE"})
    assert "t" in orjson.loads(harness.get(RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
    assert "t" in orjson.loads(harness.get(ToolCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)["topicList"]
    assert "t" not in orjson.loads(harness.get(ToolCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body)["topicList"]
    items = [{"topicName": name, "readQueueNums": 1, "writeQueueNums": 1} for name in ("u", "v")]
    harness.get(ToolCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, orjson.dumps({"topicConfigList": items}))
    assert "v" in harness.broker.topics
    harness.send("t", b"x")
    harness.get(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    assert harness.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"}).code == ResponseCode.TOPIC_NOT_EXIST
    harness.restart()
    assert "t" not in harness.broker.topics
    assert harness.stored("t") == []


async def test_a_deleted_topic_leaves_the_retry_topics_of_other_groups(harness: BrokerHarness) -> None:
    for group in ("g", "g_t"):
        harness.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, orjson.dumps({"groupName": group}))
    for topic in ("t", "u", "%RETRY%g_t", "%RETRY%g+t", "%RETRY%g_u"):
        harness.topic(topic)
    for topic in ("t", "u"):
        harness.get(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    # Of the popping group g, unless a group has the name.
    assert [name for name in ("%RETRY%g_t", "%RETRY%g+t", "%RETRY%g_u") if name in harness.broker.topics] == [
        "%RETRY%g_t"
    ]


_INVALID, _ERROR = ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "TBW102"}, _INVALID),
        ({"topic": "a b"}, _INVALID),
        ({"attributes": "+color=red"}, _ERROR),
        ({"attributes": "message.type=FIFO"}, _ERROR),
        ({"attributes": "+message.type=BIG"}, _ERROR),
        ({"readQueueNums": -1}, _INVALID),
    ],
)
async def test_invalid_topics_are_rejected(
    harness: BrokerHarness, changes: dict[str, object], code: ResponseCode
) -> None:
    fields = {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, **changes}
    reply = harness.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert (reply.code, bool(reply.remark)) == (code, True)


async def test_groups_are_created_changed_and_deleted(harness: BrokerHarness) -> None:
    config = {"groupName": "g", "retryMaxTimes": 3, "attributes": {"+priority.factor": "7"}, "somethingNewer": 1}
    harness.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, orjson.dumps(config))
    harness.restart()
    found = orjson.loads(harness.get(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"}).body)
    assert (found["retryMaxTimes"], found["attributes"], found["somethingNewer"]) == (3, {"priority.factor": "7"}, 1)
    assert found["consumeEnable"] is True
    group = harness.broker.groups.get("g")
    assert group is not None
    assert group.priority_factor == 7
    assert "g" in orjson.loads(harness.get(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)["subscriptionGroupTable"]
    harness.get(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": True})
    assert harness.broker.groups.get("g") is None
    off = {"groupName": "g", "consumeEnable": False}
    harness.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, orjson.dumps(off))
    harness.topic("t")
    assert harness.pull("t").code == ResponseCode.NO_PERMISSION


async def test_progress_of_topics_and_groups_is_reported(harness: BrokerHarness) -> None:
    harness.topic("t", queues=2)
    for _ in range(3):
        harness.send("t")
    harness.join({"g": ["t"]})
    harness.get(RequestCode.UPDATE_CONSUMER_OFFSET, queue_fields("t", consumerGroup="g", commitOffset=2))
    stats = fastjson.loads(harness.get(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"}).body)["offsetTable"]
    assert isinstance(stats, ObjectKeys)
    rows = {key["queueId"]: value for key, value in stats.pairs}
    assert (rows[0]["brokerOffset"], rows[0]["consumerOffset"], rows[1]["brokerOffset"]) == (3, 2, 0)
    topic = fastjson.loads(harness.get(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "t"}).body)["offsetTable"]
    assert {key["queueId"]: value["maxOffset"] for key, value in topic.pairs} == {0: 3, 1: 0}
    popped = harness.pop("t", "h")
    stats = fastjson.loads(harness.get(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "h", "topic": "t"}).body)
    rows = {key["queueId"]: value for key, value in stats["offsetTable"].pairs}
    assert (rows[0]["consumerOffset"], rows[0]["pullOffset"]) == (0, 3)
    for one in popped:
        harness.ack("t", one, "h")
    offsets = fastjson.loads(harness.get(ToolCode.GET_ALL_CONSUMER_OFFSET).body)
    assert (offsets["offsetTable"]["t@g"], offsets["groupTopicMap"]["g"]) == ({"0": 2}, ["t"])
    groups = orjson.loads(harness.get(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "t"}).body)
    assert groups["groupList"] == ["g", "h"]
    assert orjson.loads(harness.get(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "g"}).body)["topicList"] == ["t"]
    harness.get(ToolCode.CLONE_GROUP_OFFSET, {"srcGroup": "g", "destGroup": "i", "topic": "t"})
    assert harness.broker.offsets.get("t", "i", 0) == 2
    assert b"consumeTimeSpanSet" in harness.get(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "t", "group": "g"}).body
    asked = harness.get(ToolCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"topic": "t", "group": "g"})
    assert orjson.loads(asked.body)["subscriptionData"]["topic"] == "t"


def _measured(harness: BrokerHarness, **fields: str) -> set[str]:
    body = harness.get(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", **fields}).body
    table = fastjson.loads(body)["offsetTable"]
    # An empty table has no keys that could be objects.
    return {key["topic"] for key, _ in table.pairs} if isinstance(table, ObjectKeys) else set(table)


async def test_progress_omits_topics_to_which_members_do_not_subscribe(harness: BrokerHarness) -> None:
    for topic in ("t", "u", "%RETRY%g_t"):
        harness.topic(topic)
        harness.broker.offsets.commit(topic, "g", 0, 0)
    assert _measured(harness) == {"t", "u", "%RETRY%g_t"}
    harness.join({"g": ["t"]})
    assert _measured(harness) == {"t", "%RETRY%g_t"}
    assert _measured(harness, topic="u") == set()
    assert _measured(harness, topic="t") == {"t"}
    # A list is not compared with the subscriptions.
    assert _measured(harness, topic="t", topicList="u;absent;") == {"u"}
    assert _measured(harness, topicList=" ") == {"t", "%RETRY%g_t"}


async def test_progress_contains_the_rates_of_the_last_minute(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.broker.groups.find("g")
    harness.pass_time(5000)
    for _ in range(30):
        harness.send("t")
    harness.pull("t")
    harness.pass_time(10_000)
    topic = fastjson.loads(harness.get(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "t"}).body)
    group = fastjson.loads(harness.get(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "t"}).body)
    assert (topic["topicPutTps"], group["consumeTps"]) == (3.0, 3.0)
    harness.pass_time(120_000)
    topic = fastjson.loads(harness.get(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "t"}).body)
    assert topic["topicPutTps"] == 0.0


async def test_key_value_pairs_are_stored_by_namespace(harness: BrokerHarness) -> None:
    pair = {"namespace": "ORDER_TOPIC_CONFIG", "key": "t"}
    harness.topic("t")
    assert harness.ask(ToolCode.GET_KV_CONFIG, pair).code == ResponseCode.QUERY_NOT_FOUND
    harness.get(ToolCode.PUT_KV_CONFIG, {**pair, "value": "broker-a:1"})
    harness.restart()
    assert harness.get(ToolCode.GET_KV_CONFIG, pair).fields["value"] == "broker-a:1"
    route = routes.parse("t", harness.get(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}).body)
    assert route.data["orderTopicConf"] == "broker-a:1"
    table = orjson.loads(harness.get(ToolCode.GET_KVLIST_BY_NAMESPACE, pair).body)["table"]
    assert table == {"t": "broker-a:1"}
    harness.get(ToolCode.DELETE_KV_CONFIG, pair)
    assert harness.ask(ToolCode.GET_KVLIST_BY_NAMESPACE, pair).code == ResponseCode.QUERY_NOT_FOUND


async def test_tools_requests_are_forwarded_to_clients(harness: BrokerHarness) -> None:
    harness.topic("t")
    sent = harness.send("t", b"eat me")
    harness.join({"g": ["t"]})
    harness.push_answer = commands.success({"a": "b"}, b"result")
    whom = {"consumerGroup": "g", "clientId": "c"}
    proof = {"AccessKey": "admin", "Signature": "c2lnbmF0dXJl", "SecurityToken": "token"}
    for code in (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY):
        reply = await harness.begin(code, {**whom, **proof, "msgId": sent.fields["msgId"], "topic": "t"})
        assert (reply.code, reply.body) == (ResponseCode.SUCCESS, b"result")
        assert proof.keys().isdisjoint(harness.pushed[-1][1].fields), "the client could use the tool's signature"
    assert b"eat me" in harness.pushed[-1][1].body
    absent = harness.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, {**whom, "clientId": "x"})
    assert absent.code == ResponseCode.SYSTEM_ERROR
    harness.push_answer = commands.success(body=b'{"messageQueueTable":{{"queueId":0}:5}}')
    status = await harness.begin(ToolCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "t", "group": "g"})
    assert status.body == b'{"consumerTable":{"c":{{"queueId":0}:5}},"messageQueueTable":{}}'


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestTimeout("late"), ResponseCode.CONSUME_MSG_TIMEOUT),
        (ConnectionLost("gone"), ResponseCode.SYSTEM_ERROR),
        (UnsupportedRequest("a gRPC client"), ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
    ],
)
async def test_a_client_that_does_not_answer_a_tool_has_a_code(
    harness: BrokerHarness, error: RemotingError, code: ResponseCode
) -> None:
    harness.join({"g": []})
    harness.push_answer = error
    reply = await harness.begin(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "c"})
    assert (reply.code, reply.remark) == (code, str(error))


async def test_runtime_info_and_config_are_reported(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t")
    harness.pull("t")
    table = orjson.loads(harness.get(ToolCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("1", "1")
    assert table["brokerVersionDesc"].startswith("V5")
    lines = harness.get(RequestCode.GET_BROKER_CONFIG).body.decode().splitlines()
    config = dict(line.split("=", 1) for line in lines)
    assert (
        config.items()
        >= {
            "brokerName": "broker-a",
            "brokerId": "0",
            "autoCreateTopicEnable": "true",
            "maxMessageSize": "4194304",
            "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
            "timerMaxDelaySec": "259200",
        }.items()
    )
    assert harness.ask(4711).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def _runtime(harness: BrokerHarness) -> dict[str, str]:
    table: dict[str, str] = orjson.loads(harness.get(ToolCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    return table


async def test_runtime_info_contains_the_rates_of_the_last_minute(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.pass_time(5000)
    for _ in range(30):
        harness.send("t")
    harness.pull("t")
    harness.pass_time(10_000)
    table = _runtime(harness)
    assert (table["putTps"], table["getTransferredTps"]) == ("3.00", "3.00")
    harness.pass_time(120_000)
    table = _runtime(harness)
    assert (table["putTps"], table["getTransferredTps"]) == ("0.00", "0.00")
    assert table["runtime"] == "[ 0 days, 0 hours, 2 minutes, 15 seconds ]"


async def test_runtime_info_contains_the_totals_of_today_and_yesterday(harness: BrokerHarness) -> None:
    harness.topic("t")
    names = [f"msgPutTotal{time}" for time in ("YesterdayMorning", "TodayMorning", "TodayNow")]
    totals = []
    for count in (3, 2, 1):
        for _ in range(count):
            harness.send("t")
        table = _runtime(harness)
        totals.append([int(table[name]) for name in names])
        harness.pass_time(_DAY, step=_DAY // 24)
    assert totals == [[0, 0, 3], [0, 3, 5], [3, 5, 6]]


async def test_a_delayed_message_counts_once_in_the_totals(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"x", {"DELAY": "1"})
    assert _runtime(harness)["msgPutTotalTodayNow"] == "0"
    harness.pass_time(2000)
    assert harness.bodies("t") == [b"x"]
    assert _runtime(harness)["msgPutTotalTodayNow"] == "1"
    harness.pull("t")
    harness.pull("SCHEDULE_TOPIC_XXXX")
    assert _runtime(harness)["msgGetTotalTodayNow"] == "1"


async def test_messages_are_found_by_key_and_offset(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(3):
        harness.send("t", b"%d" % number, {"KEYS": "k", "UNIQ_KEY": f"u{number}"})
    fields = strings({"topic": "t", "key": "k", "maxNum": 2, "beginTimestamp": 0, "endTimestamp": 2**62})
    assert len(harness.get(RequestCode.QUERY_MESSAGE, fields).body.split(b"KEYS")) == 3
    unique = {**fields, "key": "u1", "_UNIQUE_KEY_QUERY": "true"}
    assert b"u1" in harness.get(RequestCode.QUERY_MESSAGE, unique).body
    found = messages.decode_messages(harness.get(RequestCode.QUERY_MESSAGE, fields).body)
    assert [message.body for message in found] == [b"1", b"2"]
    assert harness.ask(RequestCode.QUERY_MESSAGE, {**fields, "key": "x"}).code == ResponseCode.QUERY_NOT_FOUND
    assert harness.get(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0}).body
    assert harness.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 1}).code == ResponseCode.SYSTEM_ERROR


async def test_write_permission_is_taken_from_the_routes_of_the_named_broker(harness: BrokerHarness) -> None:
    harness.topic("t")

    def permission() -> int:
        route = routes.parse("t", harness.get(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}).body)
        return int(route.data["queueDatas"][0]["perm"])

    other = harness.get(ToolCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "other"})
    assert (other.fields["wipeTopicCount"], permission()) == ("0", 6)
    wiped = harness.get(ToolCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert int(wiped.fields["wipeTopicCount"]) == len(harness.broker.topics)
    assert permission() == 4
    # As with brokers, only the routes change.
    harness.send("t", b"x")
    added = harness.get(ToolCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert (added.fields["addTopicCount"], permission()) == (wiped.fields["wipeTopicCount"], 6)


async def test_progress_of_all_groups(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.topic("t", queues=1)
    harness.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, orjson.dumps({"groupName": "g"}))
    for body in (b"a", b"b", b"c"):
        harness.send("t", body)
    commit = {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": "1"}
    harness.get(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    body = fastjson.loads(harness.get(ToolCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}).body)
    [[stats]] = [table["g"] for table in body["consumeStatsList"] if "g" in table]
    [(queue, row)] = stats["offsetTable"].pairs
    assert (queue["topic"], row["brokerOffset"], row["consumerOffset"], body["totalDiff"]) == ("t", 3, 1, 2)
    ordered = fastjson.loads(harness.get(ToolCode.GET_BROKER_CONSUME_STATS, {"isOrder": "true"}).body)
    assert (ordered["totalDiff"], {"g": []} in ordered["consumeStatsList"]) == (0, True)
    monkeypatch.setattr(consumer_progress, "_MAX_ROWS", 0)
    refused = harness.ask(ToolCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    assert (refused.code, "one group" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_the_index_of_a_queue(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.topic("t", queues=1)
    for tag in ("a", "b"):
        harness.send("t", b"x", {"TAGS": tag})
    fields = {"topic": "t", "queueId": "0", "index": "0", "count": "10", "consumerGroup": "g"}
    body = orjson.loads(harness.get(ToolCode.QUERY_CONSUME_QUEUE, fields).body)
    assert (body["minQueueIndex"], body["maxQueueIndex"], body["filterData"]) == (0, 2, "g@t is not online!")
    assert [row["tagsCode"] for row in body["queueData"]] == [ord("a"), ord("b")]
    [first, second] = body["queueData"]
    assert harness.get(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(second["physicOffset"])}).body
    assert first["physicSize"] > 0
    monkeypatch.setattr(message_lookup, "_MAX_IN_QUEUE", 1)
    assert len(orjson.loads(harness.get(ToolCode.QUERY_CONSUME_QUEUE, fields).body)["queueData"]) == 1
    for index, count in ((2, 10), (-1, 10), (0, 0), (0, -1)):
        beyond = harness.get(ToolCode.QUERY_CONSUME_QUEUE, {**fields, "index": str(index), "count": str(count)})
        assert "queueData" not in orjson.loads(beyond.body)
    assert harness.ask(ToolCode.QUERY_CONSUME_QUEUE, {**fields, "queueId": "7"}).code == ResponseCode.SYSTEM_ERROR


async def test_the_broker_has_no_slaves_and_nothing_to_clean(harness: BrokerHarness) -> None:
    state = orjson.loads(harness.get(ToolCode.GET_BROKER_HA_STATUS).body)
    assert (state["master"], state["haConnectionInfo"]) == (True, [])
    harness.get(ToolCode.DELETE_EXPIRED_COMMITLOG)
