"""Stored messages: lists, one message, its way through the groups, sending it again."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from protos.apache.rocketmq.v2 import definition_pb2
from proxy.operations.messages import key_search
from remoting.codes import RequestCode
from remoting.messages import SysFlag
from tests.cluster.client import Client, create_topic, queue_fields
from tests.proxy.admin.http.replicas import GROUP, UNIQUE_ID, Replica, Stage, replica

pytestmark = pytest.mark.anyio


async def _filled(own: Replica, count: int = 100, queues: int = 2) -> str:
    """Create a topic with messages, whose tags are A, B, A, …; return its name."""
    topic = await create_topic(own.address, "browsed", queues)
    async with Client(own.address) as client:
        for number in range(count):
            pairs = {
                "UNIQ_KEY": f"id-{number:04}",
                "TAGS": "AB"[number % 2],
                "KEYS": f"key-{number % 10}",
                "n": str(number),
            }
            await client.send(topic, b'{"number": %d}' % number, pairs, queueId=number % queues)
    return topic


@pytest.fixture
async def own(tmp_path: Path) -> Any:
    (tmp_path / "types.pb").write_bytes(_descriptors())
    async with replica(tmp_path / "store", admin={"descriptors": [tmp_path / "types.pb"]}) as running:
        yield running


def _descriptors() -> bytes:
    found: dict[str, Any] = {}

    def add(file: Any) -> None:
        for dependency in file.dependencies:
            add(dependency)
        found.setdefault(file.name, file)

    add(definition_pb2.DESCRIPTOR)
    content = FileDescriptorSet()
    for file in found.values():
        file.CopyToProto(content.file.add())
    return content.SerializeToString()


async def _pages(own: Replica, path: str, **query: Any) -> list[Any]:
    """Return the items of all pages."""
    items: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        reply = await own.write.get(path, params={**query, **cursor})
        assert reply.status_code == 200, reply.text
        page = reply.json()
        # Texts of times are no order: they have no fraction at whole seconds.
        items += [{**item, "stored": datetime.fromisoformat(item["stored"])} for item in page["items"]]
        if page["next"] is None:
            return items
        cursor = {"cursor": page["next"]}


async def test_pages_hold_every_message_once_in_the_order_of_time(own: Replica) -> None:
    topic = await _filled(own)
    for order, expected in (("newest", range(99, -1, -1)), ("oldest", range(100))):
        items = await _pages(own, f"/v1/topics/{topic}/messages", limit=7, order=order)
        places = [(item["stored"], item["queue"], item["offset"]) for item in items]
        assert places == sorted(places, reverse=order == "newest")
        assert {item["message_id"] for item in items} == {f"id-{number:04}" for number in expected}
        assert len(items) == 100


async def test_messages_that_arrive_between_pages_shift_none(own: Replica) -> None:
    topic = await _filled(own, 20)
    first = (await own.write.get(f"/v1/topics/{topic}/messages", params={"limit": 5})).json()
    async with Client(own.address) as client:
        await client.send(topic, b"late", {"UNIQ_KEY": "late"})
    rest = await _pages(own, f"/v1/topics/{topic}/messages", limit=50, cursor=first["next"])
    assert len(rest) == 15
    assert "late" not in {item["message_id"] for item in rest}


async def test_messages_are_filtered_by_queue_offset_tag_sql_key_and_time(own: Replica) -> None:
    topic = await _filled(own)
    path = f"/v1/topics/{topic}/messages"
    assert {item["queue"] for item in await _pages(own, path, queue=1)} == {1}
    from_offset = await _pages(own, path, queue=0, offset=45)
    assert [item["offset"] for item in from_offset] == [45, 46, 47, 48, 49]
    assert {item["tag"] for item in await _pages(own, path, tag="A || C", limit=9)} == {"A"}
    assert await _pages(own, path, tag="*") == await _pages(own, path)
    by_sql = await _pages(own, path, sql="n BETWEEN 10 AND 12")
    assert {item["message_id"] for item in by_sql} == {"id-0010", "id-0011", "id-0012"}
    by_key = await _pages(own, path, key="key-3", limit=4)
    assert len(by_key) == 10
    assert {item["message_id"][-1] for item in by_key} == {"3"}
    middle = by_key[4]["stored"]
    before = await _pages(own, path, to=middle.isoformat())
    after = await _pages(own, path, **{"from": middle.isoformat()})
    assert all(item["stored"] <= middle for item in before)
    assert all(item["stored"] >= middle for item in after)
    assert {item["message_id"] for item in before + after} == {f"id-{number:04}" for number in range(100)}
    assert await _pages(own, path, **{"from": "2100-01-01T00:00:00Z"}) == []


async def test_search_by_key_finds_more_messages_than_one_reply_of_a_broker_holds(
    own: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await create_topic(own.address, "keyed", 2)
    async with Client(own.address) as client:
        await client.route(topic)
        for number in range(200):
            named = {"UNIQ_KEY": f"id-{number:04}", "KEYS": "order-17", "TAGS": "paid" if number < 100 else "open"}
            await client.send(topic, b"x", named, queue=number % 2)
    path = f"/v1/topics/{topic}/messages"
    whole = await own.write.get(path, params={"key": "order-17", "limit": 200})
    assert (len(whole.json()["items"]), whole.json()["next"]) == (200, None)
    queries: tuple[tuple[int, dict[str, Any]], ...] = ((200, {}), (100, {"tag": "paid"}), (100, {"queue": 0}))
    for expected, query in queries:
        assert (
            len({item["message_id"] for item in await _pages(own, path, key="order-17", limit=50, **query)}) == expected
        )
    # A page whose requests are used up has a next page.
    monkeypatch.setattr(key_search, "_MAX_REQUESTS", 1)
    items = await _pages(own, path, key="order-17", limit=50, tag="paid")
    assert len(items) == len({item["message_id"] for item in items}) == 100


async def test_an_inner_batch_that_cannot_be_decoded_hides_no_message(own: Replica) -> None:
    topic = await _filled(own, 2, queues=1)
    async with Client(own.address) as client:
        await client.send(topic, b"no batch", sysFlag=int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP))
    page = await own.get(f"/v1/topics/{topic}/messages")
    assert [item["offset"] for item in page["items"]] == [2, 1, 0]


async def test_body_is_shown_in_every_form(own: Replica) -> None:
    topic = await _filled(own, 1)
    resource = definition_pb2.Resource(resource_namespace="shop", name="orders").SerializeToString()
    async with Client(own.address) as client:
        await client.send(topic, resource, {"UNIQ_KEY": "binary"})
    path = f"/v1/topics/{topic}/messages"
    one = (await own.write.get(f"{path}/id-0000")).json()
    assert one["body"] == {"format": "json", "content": {"number": 0}, "bytes": 13, "truncated": False}
    assert (one["keys"], one["properties"]["n"], one["preview"]) == (["key-0"], "0", '{"number": 0}')
    forms = {"text": '{"number": 0}', "hex": b'{"number": 0}'.hex(), "base64": "eyJudW1iZXIiOiAwfQ=="}
    for form, content in forms.items():
        assert (await own.write.get(f"{path}/id-0000", params={"body": form})).json()["body"]["content"] == content
    query = {"body": "protobuf", "message_type": "apache.rocketmq.v2.Resource"}
    decoded = (await own.write.get(f"{path}/binary", params=query)).json()["body"]
    assert decoded["content"] == {"resource_namespace": "shop", "name": "orders"}
    assert (await own.write.get(f"{path}/binary")).json()["body"]["format"] == "hex"
    # The offset message id is an id too.
    assert (await own.write.get(f"{path}/{one['offset_message_id']}")).json()["message_id"] == "id-0000"
    for query, place in (
        ({"body": "json"}, "query body"),
        ({"body": "protobuf"}, "query message_type"),
        ({"body": "protobuf", "message_type": "shop.Unknown"}, "query message_type"),
    ):
        reply = await own.write.get(f"{path}/binary", params=query)
        assert (reply.status_code, [fault["where"] for fault in reply.json()["faults"]]) == (422, [place])


async def test_reader_sees_no_contents(served: Stage) -> None:
    path = f"/v1/topics/{served.topic}/messages"
    listed = await served.replica.read.get(path)
    one = await served.replica.read.get(f"{path}/{UNIQUE_ID}")
    for text in (listed.text, one.text):
        assert "secret" not in text
        assert UNIQUE_ID in text
    assert (one.json()["body"], one.json()["properties"], one.json()["keys"]) == (None, None, None)
    for query in ({"key": "secret-key"}, {"sql": "KEYS = 'secret-key'"}, {"sql": "KEYS ="}):
        refused = await served.replica.read.get(path, params=query)
        assert (refused.status_code, "admin.contents" in refused.json()["detail"]) == (403, True), query
    assert (await served.replica.write.get(f"{path}/{UNIQUE_ID}")).json()["body"]["content"] == "secret body"


async def test_wrong_requests_name_their_faults(served: Stage) -> None:
    write, path = served.replica.write, f"/v1/topics/{served.topic}/messages"
    for query, place in (
        ({"tag": "A", "sql": "a = 1"}, "query sql"),
        ({"from": "2026-11-21T08:00:01Z", "to": "2026-11-21T08:00:00Z"}, "query to"),
        ({"sql": "a ="}, "query sql"),
        ({"offset": "3"}, "query offset"),
        ({"queue": "0", "offset": "3", "order": "newest"}, "query order"),
        ({"key": "a", "order": "oldest"}, "query order"),
        ({"tags": "A"}, "query tags"),
        ({"limit": "0"}, "query limit"),
    ):
        reply = await write.get(path, params=query)
        assert (reply.status_code, [fault["where"] for fault in reply.json()["faults"]]) == (422, [place]), query
    for missing in ("/v1/topics/missing/messages", "/v1/topics/missing/messages/1", f"{path}/unknown"):
        assert (await write.get(missing)).status_code == 404
    for query in ({"queue": "9"}, {"broker": "broker-z"}, {"cursor": "abc"}):
        assert (await write.get(path, params=query)).status_code == 404, query


async def test_journey_names_every_group_with_its_state(own: Replica) -> None:
    topic = await create_topic(own.address, "travelled", queues=1)
    async with Client(own.address) as client:
        await client.heartbeat({"ahead": [topic], "behind": [topic], "failing": [topic]})
        await client.send(topic, b"x", {"UNIQ_KEY": "first", "TAGS": "A"})
        for group, offset in (("ahead", 1), ("behind", 0), ("failing", 0)):
            fields = queue_fields(topic, consumerGroup=group, commitOffset=offset)
            await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        (stored,) = await client.pull(topic, "failing")
        fields = {"offset": stored.commit_log_offset, "group": "failing", "delayLevel": -1, "originTopic": topic}
        await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, client.named(fields))
        journey = await own.get(f"/v1/topics/{topic}/messages/first/groups")
    states = {group["group"]: group["state"] for group in journey["groups"]}
    assert states == {"ahead": "consumed", "behind": "waiting", "failing": "dead"}


async def test_message_that_waits_for_a_later_retry_is_not_consumed(own: Replica) -> None:
    topic = await create_topic(own.address, "travelled", queues=1)
    async with Client(own.address) as client:
        await client.heartbeat({"failing": [topic], "other": [topic]})
        await client.send(topic, b"x", {"UNIQ_KEY": "first"})
        (stored,) = await client.pull(topic, "failing")
        states = []
        # In two hours, and in a second.
        for level in (18, 1):
            fields = {"offset": stored.commit_log_offset, "group": "failing", "delayLevel": level, "originTopic": topic}
            await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, client.named(fields))
            for group in ("failing", "other"):
                fields = queue_fields(topic, consumerGroup=group, commitOffset=1)
                await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            journey = await own.get(f"/v1/topics/{topic}/messages/first/groups")
            states.append({group["group"]: (group["state"], group["retries"]) for group in journey["groups"]})
        assert states == [{"failing": ("retrying", 1), "other": ("consumed", 0)}] * 2
        (again,) = await client.pull("%RETRY%failing", "failing", wait=20_000)
        fields = queue_fields("%RETRY%failing", consumerGroup="failing", commitOffset=again.queue_offset + 1)
        await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        journey = await own.get(f"/v1/topics/{topic}/messages/first/groups")
        assert {group["group"]: group["state"] for group in journey["groups"]}["failing"] == "consumed"


async def test_message_is_resent_to_its_topic_or_to_one_group(own: Replica) -> None:
    topic = await _filled(own, 1)
    path = f"/v1/topics/{topic}/messages/id-0000/resend"
    assert (await own.read.post(path)).status_code == 401
    assert await own.post(path) == {"message_id": "id-0000", "topic": topic}
    assert len(await _pages(own, f"/v1/topics/{topic}/messages")) == 2
    async with Client(own.address) as client:
        await client.heartbeat({GROUP: [topic]})
        for choice in ({"to": "retry"}, {"to": "auto"}, {}, {"to": None}):
            assert (await own.post(path, {**choice, "group": GROUP}))["topic"] == f"%RETRY%{GROUP}"
        assert len(await _pages(own, f"/v1/topics/{topic}/messages")) == 2, "no other group gets a copy"
        refused = await own.write.post(path, json={"to": "topic", "group": GROUP})
        assert (refused.status_code, refused.json()["faults"][0]["where"]) == (422, "body to")
    assert (await own.write.post(path, json={"group": "missing"})).status_code == 404
    assert (await own.write.post(path, json={"to": "retry"})).status_code == 422
    assert (await own.write.post(path, json={"to": "retry", "group": "missing"})).status_code == 404


async def test_queues_of_a_topic_have_their_offsets(own: Replica) -> None:
    topic = await _filled(own, 5)
    found = (await own.read.get(f"/v1/topics/{topic}/queues")).json()
    assert (found["topic"], found["messages"], found["unanswered"]) == (topic, 5, [])
    queues = [(row["broker"], row["queue"], row["first"], row["end"], row["messages"]) for row in found["queues"]]
    assert queues == [("broker-a", 0, 0, 3, 3), ("broker-a", 1, 0, 2, 2)]
    assert all(row["last_stored"] is not None for row in found["queues"])
    missing = await own.read.get("/v1/topics/missing/queues")
    assert missing.status_code == 404
    assert missing.json()["detail"] == "there is no topic missing"
