import pytest

from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.producing.recall_service import RecallService
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2 import RecallMessageRequest, RecallMessageResponse
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.ids import RecallHandle
from remoting.properties import MessageType
from remoting.topic_group_config import TopicConfig
from tests.grpc_gateway.fakes import FakeCore, make_rpc
from tests.grpc_gateway.messages import resource

pytestmark = pytest.mark.anyio

HANDLE = str(RecallHandle("orders", "broker-a", 1_700_000_000_000, "01AB"))


async def recall(core: FakeCore, handle: str = HANDLE) -> RecallMessageResponse:
    request = RecallMessageRequest(topic=resource(), recall_handle=handle)
    return await RecallService(core, GatewayOptions()).recall(make_rpc(), request)


async def test_recall_is_sent_to_the_broker_in_the_handle() -> None:
    core = FakeCore(answer=lambda command: commands.success({"msgId": "01AB"}))
    response = await recall(core)
    assert (response.status.code, response.message_id) == (Code.OK, "01AB")
    [(_, code, fields, _)] = core.handled
    assert code == RequestCode.RECALL_MESSAGE
    assert fields == {"topic": "orders", "producerGroup": "orders", "recallHandle": HANDLE, "bname": "broker-a"}


async def test_recall_status_follows_the_reply_of_the_broker() -> None:
    core = FakeCore(answer=lambda command: commands.response(ResponseCode.ILLEGAL_OPERATION, remark="too late"))
    response = await recall(core)
    assert (response.status.code, response.status.message) == (Code.BAD_REQUEST, "too late")


async def test_invalid_recall_handle_is_rejected() -> None:
    with pytest.raises(Refused) as refused:
        await recall(FakeCore(), "garbage")
    assert refused.value.code == Code.BAD_REQUEST


@pytest.mark.parametrize("kind", list(MessageType))
async def test_recall_needs_a_topic_with_delayed_messages(kind: MessageType) -> None:
    core = FakeCore(topics={"orders": TopicConfig("orders", kind)})
    if kind in (MessageType.DELAY, MessageType.MIXED, MessageType.UNSPECIFIED):
        assert (await recall(core)).status.code == Code.OK
        return
    text = f"TopicMessageType validate failed, the expected type is {kind.name}, but actual type is DELAY"
    with pytest.raises(Refused, match=f"^{text}$") as refused:
        await recall(core)
    assert refused.value.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
