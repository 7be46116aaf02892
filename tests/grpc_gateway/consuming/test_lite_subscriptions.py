"""SyncLiteSubscription."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from grpc_gateway.consuming.lite_subscriptions import LiteSubscriptionService
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, LiteSubscriptionAction, OffsetOption
from protos.apache.rocketmq.v2.service_pb2 import SyncLiteSubscriptionRequest
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RequestTimeout
from remoting.topic_group_config import GroupConfig
from tests.grpc_gateway.fakes import FakeCore, make_rpc
from tests.grpc_gateway.messages import resource, route

pytestmark = pytest.mark.anyio


LITE_GROUP = GroupConfig("group", lite_bind_topic="orders")


def make_core(answer: Any = None) -> FakeCore:
    return FakeCore(
        groups={"group": LITE_GROUP},
        routes={"orders": route("orders", "broker-a", "broker-b")},
        answer=lambda command: commands.success() if answer is None else answer(command.fields["bname"]),
    )


async def sync(core: FakeCore, *names: str, **fields: Any) -> int:
    request = SyncLiteSubscriptionRequest(
        **{"topic": resource(), "group": resource("group"), "lite_topic_set": names, **fields}
    )
    return (await LiteSubscriptionService(core, GatewayOptions()).sync(make_rpc(), request)).status.code


@pytest.mark.parametrize("action", list(LiteSubscriptionAction.values()))
async def test_subscriptions_are_sent_to_every_broker_of_the_topic(action: LiteSubscriptionAction) -> None:
    core = make_core()
    assert await sync(core, "a", "b", action=action, version=7) == Code.OK
    assert [(code, fields) for _, code, fields, _ in core.handled] == [
        (RequestCode.LITE_SUBSCRIPTION_CTL, {"bname": "broker-a"}),
        (RequestCode.LITE_SUBSCRIPTION_CTL, {"bname": "broker-b"}),
    ]
    for _, _, _, body in core.handled:
        assert orjson.loads(body) == {
            "subscriptionSet": [
                {
                    "action": LiteSubscriptionAction.Name(action),
                    "clientId": "c1",
                    "group": "group",
                    "topic": "orders",
                    "liteTopicSet": ["a", "b"],
                    "version": 7,
                }
            ]
        }


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (OffsetOption(policy=OffsetOption.MAX), {"type": "POLICY", "value": 2}),
        (OffsetOption(policy=OffsetOption.LAST), {"type": "POLICY", "value": 0}),
        (OffsetOption(offset=5), {"type": "OFFSET", "value": 5}),
        (OffsetOption(tail_n=5), {"type": "TAIL_N", "value": 5}),
        (OffsetOption(timestamp=5), {"type": "TIMESTAMP", "value": 5}),
        (OffsetOption(), None),
    ],
)
async def test_offset_option_is_sent_with_a_partial_add_only(option: OffsetOption, expected: object) -> None:
    core = make_core()
    await sync(core, "a", action=LiteSubscriptionAction.PARTIAL_ADD, offset_option=option)
    assert orjson.loads(core.handled[0][3])["subscriptionSet"][0].get("offsetOption") == expected
    await sync(core, "a", action=LiteSubscriptionAction.COMPLETE_ADD, offset_option=option)
    assert "offsetOption" not in orjson.loads(core.handled[-1][3])["subscriptionSet"][0]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (
            commands.response(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED),
            Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
        ),
        (commands.response(ResponseCode.LMQ_QUOTA_EXCEEDED), Code.LITE_TOPIC_QUOTA_EXCEEDED),
        (commands.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), Code.NOT_IMPLEMENTED),
        (commands.response(ResponseCode.ILLEGAL_OPERATION), Code.BAD_REQUEST),
        (RequestTimeout("late"), Code.PROXY_TIMEOUT),
    ],
)
async def test_failure_of_one_broker_is_the_status(answer: Any, code: int) -> None:
    core = make_core(lambda broker: answer if broker == "broker-b" else commands.success())
    assert await sync(core, "a") == code


@pytest.mark.parametrize("action", list(LiteSubscriptionAction.values()))
@pytest.mark.parametrize(("bound", "shown"), [("others", "others"), ("", "null")])
async def test_parent_topic_is_that_of_the_group(action: LiteSubscriptionAction, bound: str, shown: str) -> None:
    core = make_core()
    core.groups["group"] = GroupConfig("group", lite_bind_topic=bound)
    with pytest.raises(Refused) as refused:
        await sync(core, "a", action=action)
    assert refused.value.code == Code.ILLEGAL_TOPIC
    assert str(refused.value) == f"lite group group is expected to bind topic {shown}, but actual is orders"
    assert core.handled == []
    core.groups["group"] = GroupConfig("group", assumed=True)
    assert await sync(core, "a", action=action) == Code.OK


@pytest.mark.parametrize("action", list(LiteSubscriptionAction.values()))
async def test_names_in_one_request_are_limited_by_the_quota_of_the_group(action: LiteSubscriptionAction) -> None:
    core = make_core()
    core.groups["group"] = replace(LITE_GROUP, lite_subscription_quota=2)
    names = [f"n{number}" for number in range(303)]
    assert await sync(core, *names[:302], names[0], action=action) == Code.OK
    core.handled.clear()
    with pytest.raises(Refused) as refused:
        await sync(core, *names, action=action)
    assert refused.value.code == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert core.handled == []


@pytest.mark.parametrize("group", [replace(LITE_GROUP, lite_subscription_quota=-1), replace(LITE_GROUP, assumed=True)])
async def test_names_are_not_limited_without_a_known_quota(group: GroupConfig) -> None:
    core = make_core()
    core.groups["group"] = group
    assert await sync(core, *(f"n{number}" for number in range(2_301))) == Code.OK


@pytest.mark.parametrize("name", ["", "a b", "a%b", "a" * 65])
async def test_invalid_lite_topic_is_rejected_unless_it_is_removed(name: str) -> None:
    with pytest.raises(Refused) as refused:
        await sync(make_core(), name, action=LiteSubscriptionAction.PARTIAL_ADD)
    assert refused.value.code == Code.ILLEGAL_LITE_TOPIC
    assert await sync(make_core(), name, action=LiteSubscriptionAction.PARTIAL_REMOVE) == Code.OK


async def test_topic_without_readable_queues_is_forbidden() -> None:
    core = make_core()
    core.routes["orders"] = route("orders", perm=2)
    with pytest.raises(Refused) as refused:
        await sync(core, "a")
    assert refused.value.code == Code.FORBIDDEN


async def test_unknown_action_is_rejected() -> None:
    core = make_core()
    with pytest.raises(Refused) as refused:
        await sync(core, "a", action=99)
    assert refused.value.code == Code.BAD_REQUEST
    assert core.handled == []
