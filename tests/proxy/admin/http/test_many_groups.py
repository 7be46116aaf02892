"""Lists of more consumer groups than a survey or a page has."""

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest

from proxy.operations.groups.group_list import GroupSort
from proxy.operations.groups.group_survey import GroupState
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from tests.cluster.client import Client, create_topic, queue_fields
from tests.proxy.admin.http.replicas import Replica, replica

pytestmark = pytest.mark.anyio


async def _create(own: Replica, *names: str) -> None:
    async with Client(own.address) as client:
        for name in names:
            body = orjson.dumps({"groupName": name, "consumeEnable": True})
            await client.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


async def test_groups_beyond_the_limit_of_a_survey_are_listed_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with replica(tmp_path, admin={"survey_interval": 0, "survey_groups": 2}) as own:
        await _create(own, "d", "b", "c", "a")
        with caplog.at_level(logging.WARNING, "gantry.admin"):
            for _ in range(2):
                await own.app.admin_services.survey.refresh(0.0)
        assert [record.getMessage() for record in caplog.records if "surveyed" in record.getMessage()] == [
            "2 of 4 consumer groups are not surveyed: admin.survey_groups is 2"
        ]
        listed = await own.get("/v1/consumer-groups")
        assert [(group["name"], group["state"], group["lag"]) for group in listed["items"]] == [
            ("a", "offline", 0),
            ("b", "offline", 0),
            ("c", None, None),
            ("d", None, None),
        ]
        assert (listed["total"], listed["left_out"]) == (4, 2)
        pages = [await own.get("/v1/consumer-groups", limit=3)]
        pages.append(await own.get("/v1/consumer-groups", limit=3, cursor=pages[0]["next"]))
        assert [[group["name"] for group in page["items"]] for page in pages] == [["a", "b", "c"], ["d"]]
        assert (await own.get("/v1/consumer-groups", state="offline"))["total"] == 2
        one = await own.get("/v1/consumer-groups/d")
        assert (one["state"], one["lag"]) == ("offline", 0)
        assert "gantry_consumer_groups_left_out 2.0" in (await own.read.get("/metrics")).text


async def _backlogs(own: Replica, **waiting: int) -> None:
    """Create groups with so many of nine messages left, and without members."""
    await _create(own, *waiting)
    topic = await create_topic(own.address, "many", queues=1)
    async with Client(own.address) as client:
        for number in range(9):
            await client.send(topic, b"%d" % number)
        for group, left in waiting.items():
            fields = queue_fields(topic, consumerGroup=group, commitOffset=9 - left)
            await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


async def _pages(own: Replica, **query: Any) -> list[list[str]]:
    """Return the names on each page."""
    pages, cursor = [], None
    while True:
        page = await own.get("/v1/consumer-groups", **query, **({} if cursor is None else {"cursor": cursor}))
        pages.append([group["name"] for group in page["items"]])
        cursor = page["next"]
        if cursor is None:
            return pages


async def test_groups_are_sorted_filtered_by_attention_and_paged(tmp_path: Path) -> None:
    async with replica(tmp_path, admin={"survey_interval": 0, "survey_groups": 5}) as own:
        await _backlogs(own, a=0, b=3, c=7, d=0, e=3)
        await _create(own, "x")
        assert await _pages(own, sort="-lag", limit=2) == [["c", "e"], ["b", "d"], ["a", "x"]]
        assert await _pages(own, sort="lag", limit=4) == [["x", "a", "d", "b"], ["e", "c"]]
        assert await _pages(own, sort="-name", limit=3) == [["x", "e", "d"], ["c", "b", "a"]]
        assert await _pages(own, attention="true", sort="-urgency", limit=2) == [["c", "e"], ["b"]]
        assert await _pages(own, attention="false") == [["a", "d"]]
        assert await _pages(own, name=["e", "a", "missing"]) == [["a", "e"]]
        for key in get_args(GroupSort):
            names = await _pages(own, sort=key, limit=1)
            assert sorted(name for (name,) in names) == ["a", "b", "c", "d", "e", "x"], key
        cursor = (await own.get("/v1/consumer-groups", sort="-lag", limit=1))["next"]
        other = {"sort": "lag", "cursor": cursor}
        assert (await own.read.get("/v1/consumer-groups", params=other)).status_code == 404
        assert (await own.read.get("/v1/consumer-groups", params={"sort": "size"})).status_code == 422
        assert (await own.read.get("/v1/consumer-groups", params={"name": ["a"] * 101})).status_code == 422


async def test_list_does_not_wait_for_a_survey_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica(tmp_path, admin={"survey_interval": 3600}) as own:
        await _create(own, "a")
        survey = own.app.admin_services.survey
        await survey.refresh(0.0)
        never = asyncio.Event()
        monkeypatch.setattr(survey, "_take", never.wait)
        running = asyncio.ensure_future(survey.refresh(0.0))
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            assert await _pages(own) == [["a"]]
        running.cancel()


async def test_few_surveys_ask_for_members_of_a_group_that_stays_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that consumes, or has members here, is asked at once."""
    names = [f"idle-{number}" for number in range(40)]
    async with replica(tmp_path, admin={"survey_interval": 3600}) as own:
        await _backlogs(own, **dict.fromkeys(names, 0))
        backend, survey = own.app.core.backend, own.app.admin_services.survey
        asked: Counter[str] = Counter()
        request = backend.request

        def counted(broker: str, spec: Any, command: RemotingCommand, *more: Any) -> Any:
            if command.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                asked[command.fields["consumerGroup"]] += 1
            return request(broker, spec, command, *more)

        monkeypatch.setattr(backend, "request", counted)
        await survey.refresh(0.0)
        assert asked == Counter(names), "the first survey asks for all"
        asked.clear()
        for _ in range(4):
            await survey.refresh(0.0)
        assert asked == Counter(names), "each of the others for a quarter"
        asked.clear()
        await survey.look(names[0])
        assert asked == {names[0]: 1}
        async with Client(own.address) as client:
            topic = (await own.get("/v1/consumer-groups", limit=1))["items"][0]["topics"][0]
            await client.heartbeat({names[0]: [topic]})
            asked.clear()
            statuses = await survey.refresh(0.0)
            assert (statuses[names[0]].state, statuses[names[0]].members) == (GroupState.ONLINE, 1)
            assert asked[names[0]] == 1
            for name in names[1:9]:
                fields = queue_fields(topic, consumerGroup=name, commitOffset=5)
                await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            asked.clear()
            await survey.refresh(0.0)
            assert [asked[name] for name in names[1:9]] == [1] * 8
