"""Lists of more consumer groups than a survey or a page has."""

import logging
from pathlib import Path

import orjson
import pytest

from remoting.codes import RequestCode
from tests.cluster.client import Client
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
