"""Dead letters beyond the first page, over the HTTP API."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.client import Client, create_topic
from tests.proxy.admin.dead_letters import bury, message_id
from tests.proxy.admin.http.replicas import Replica, replica

pytestmark = pytest.mark.anyio

_GROUP = "billing"
_PATH = f"/v1/consumer-groups/{_GROUP}/dead-letters"


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Replica]:
    async with replica(tmp_path / "store") as own:
        yield own


async def test_every_dead_letter_is_listed_and_resent_though_others_arrive_meanwhile(own: Replica) -> None:
    topic = await create_topic(own.address, "orders", 1)
    async with Client(own.address) as client:
        await client.heartbeat({_GROUP: [topic]})
        await bury(client, topic, _GROUP, range(130))
        page = await own.get(_PATH, limit=100)
        listed = [letter["message_id"] for letter in page["items"]]
        assert listed == [message_id(number) for number in range(129, 29, -1)]
        await bury(client, topic, _GROUP, range(130, 133))
        page = await own.get(_PATH, limit=100, cursor=page["next"])
        older = [letter["message_id"] for letter in page["items"]]
        assert (older, page["next"]) == ([message_id(number) for number in range(29, -1, -1)], None)
        resent = (await own.post(f"{_PATH}/resend", {"message_ids": older}))["items"]
        assert {(one["sent"], one["topic"]) for one in resent} == {(True, f"%RETRY%{_GROUP}")}


async def test_resending_from_an_empty_queue_names_the_message_and_from_no_group_the_group(own: Replica) -> None:
    topic = await create_topic(own.address, "orders", 1)
    async with Client(own.address) as client:
        await client.heartbeat({_GROUP: [topic]})
        [one] = (await own.post(f"{_PATH}/resend", {"message_ids": ["unknown"]}))["items"]
    assert (one["sent"], one["text"]) == (False, "the dead letter queue does not hold it")
    answer = await own.write.post("/v1/consumer-groups/nope/dead-letters/resend", json={"message_ids": ["unknown"]})
    assert (answer.status_code, answer.json()["detail"]) == (404, "there is no consumer group nope")


@pytest.mark.parametrize(("query", "status"), [({"cursor": "bm8"}, 404), ({"limit": 101}, 422), ({"offset": 100}, 422)])
async def test_a_page_of_dead_letters_that_does_not_exist_is_refused(
    own: Replica, query: dict[str, Any], status: int
) -> None:
    topic = await create_topic(own.address, "orders", 1)
    async with Client(own.address) as client:
        await client.heartbeat({_GROUP: [topic]})
        assert (await own.read.get(_PATH, params=query)).status_code == status
