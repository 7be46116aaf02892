"""Rules on requests whose codes or names are not all in the request table."""

from pathlib import Path

import orjson
import pytest

from remoting.broker_requests import TOOL_REQUESTS
from remoting.codes import RequestCode, ResponseCode, ToolCode
from tests.proxy.traffic_rules.replica import run_replica

pytestmark = pytest.mark.anyio


def _deny(criteria: str) -> str:
    return f'[[rule]]\nname = "no-tools"\nkind = "deny"\n{criteria}\n'


def _topics(*names: str) -> bytes:
    rows = [{"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for name in names]
    return orjson.dumps({"topicConfigList": rows})


async def test_actions_cover_the_requests_that_only_the_embedded_broker_serves(tmp_path: Path) -> None:
    rules = _deny('match.actions = ["Get", "Create", "Update", "Delete"]')
    async with run_replica(tmp_path, rules) as replica, replica.remoting() as client:
        for code in TOOL_REQUESTS:
            body = _topics("new") if code == ToolCode.UPDATE_AND_CREATE_TOPIC_LIST else b"{}"
            reply = await client.ask(code, {}, body)
            assert reply.code == ResponseCode.NO_PERMISSION, TOOL_REQUESTS[code].name
            assert "no-tools" in (reply.remark or "")
        assert replica.counts("no-tools").enforced == len(TOOL_REQUESTS)


async def test_a_rule_may_name_such_a_request(tmp_path: Path) -> None:
    rules = _deny('match.requests = ["UPDATE_AND_CREATE_TOPIC_LIST"]')
    async with run_replica(tmp_path, rules) as replica, replica.remoting() as client:
        reply = await client.ask(ToolCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, _topics("new"))
        assert reply.code == ResponseCode.NO_PERMISSION
        assert (await client.ask(ToolCode.GET_ALL_CONSUMER_OFFSET, {})).code == ResponseCode.SUCCESS


_GROUPS = orjson.dumps({"groupConfigList": [{"groupName": "open"}, {"groupName": "payroll"}]})
_GROUP = orjson.dumps({"groupName": "payroll"})
_MODE = orjson.dumps({"topic": "salaries", "consumerGroup": "payroll", "mode": "POP", "popShareQueueNum": 0})


@pytest.mark.parametrize("criterion", ['match.topics = ["salaries"]', 'match.groups = ["payroll"]'])
@pytest.mark.parametrize(
    ("code", "fields", "body", "has_topic", "has_group"),
    [
        (ToolCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, _topics("open", "salaries"), True, False),
        (ToolCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, _GROUPS, False, True),
        (ToolCode.SET_MESSAGE_REQUEST_MODE, {}, _MODE, True, True),
        (ToolCode.CLONE_GROUP_OFFSET, {"srcGroup": "payroll", "destGroup": "g", "topic": "salaries"}, b"", True, True),
        (ToolCode.CLONE_GROUP_OFFSET, {"srcGroup": "g", "destGroup": "payroll", "topic": "open"}, b"", False, True),
        (ToolCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"topic": "salaries", "group": "g"}, b"", True, False),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, _GROUP, False, True),
        (RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "payroll"}, b"", False, True),
        (RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "payroll"}, b"", False, True),
        (
            RequestCode.UNREGISTER_CLIENT,
            {"clientID": "c", "producerGroup": "", "consumerGroup": "g"},
            b"",
            False,
            False,
        ),
    ],
)
async def test_names_in_bodies_and_further_fields_are_matched(
    tmp_path: Path,
    criterion: str,
    code: ToolCode | RequestCode,
    fields: dict[str, str],
    body: bytes,
    has_topic: bool,
    has_group: bool,
) -> None:
    rules = _deny(f'match.requests = ["{code.name}"]\n{criterion}')
    async with run_replica(tmp_path, rules) as replica, replica.remoting() as client:
        denied = (await client.ask(code, fields, body)).code == ResponseCode.NO_PERMISSION
        assert denied == (has_topic if "topics" in criterion else has_group)
