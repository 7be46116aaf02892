from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.producing.transaction_service import TransactionService
from grpc_gateway.response_status import Refused
from grpc_gateway.transaction_id import TransactionId
from protos.apache.rocketmq.v2.definition_pb2 import Code, TransactionResolution, TransactionSource
from protos.apache.rocketmq.v2.service_pb2 import EndTransactionRequest
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from tests.grpc_gateway.fakes import FakeCore, make_rpc
from tests.grpc_gateway.messages import resource

pytestmark = pytest.mark.anyio

OFFSETS = st.integers(0, 2**63 - 1)
WORDS = st.text(st.characters(exclude_characters=" ", exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(WORDS, OFFSETS, OFFSETS, WORDS)
def test_parse_reads_a_formatted_id(broker: str, queue_offset: int, commit_log_offset: int, message_id: str) -> None:
    transaction = TransactionId(broker, queue_offset, commit_log_offset, message_id)
    assert TransactionId.parse(str(transaction)) == transaction


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_parse_rejects_invalid_text(text: str) -> None:
    with pytest.raises(Refused) as refused:
        TransactionId.parse(text)
    assert refused.value.code == Code.INVALID_TRANSACTION_ID


async def end_transaction(core: FakeCore, **more: object) -> int:
    fields_of_request: dict[str, Any] = {
        "transaction_id": str(TransactionId("broker-a", 7, 4711, "01AB")),
        "resolution": TransactionResolution.COMMIT,
        **more,
    }
    request = EndTransactionRequest(topic=resource(), message_id="01AB", **fields_of_request)
    response = await TransactionService(core).end(make_rpc(), request)
    return response.status.code


@pytest.mark.parametrize(
    ("resolution", "flag"), [(TransactionResolution.COMMIT, "8"), (TransactionResolution.ROLLBACK, "12")]
)
@pytest.mark.parametrize(
    ("source", "checked"),
    [(TransactionSource.SOURCE_CLIENT, "false"), (TransactionSource.SOURCE_SERVER_CHECK, "true")],
)
async def test_outcome_is_sent_to_the_broker(resolution: int, flag: str, source: int, checked: str) -> None:
    core = FakeCore()
    assert await end_transaction(core, resolution=resolution, source=source) == Code.OK
    [(_, code, fields, _)] = core.handled
    assert code == RequestCode.END_TRANSACTION
    assert fields == {
        "topic": "orders",
        "producerGroup": "orders",
        "tranStateTableOffset": "7",
        "commitLogOffset": "4711",
        "commitOrRollback": flag,
        "fromTransactionCheck": checked,
        "msgId": "01AB",
        "transactionId": "01AB",
        "bname": "broker-a",
    }


async def test_unspecified_resolution_sends_nothing() -> None:
    core = FakeCore()
    assert await end_transaction(core, resolution=TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED) == Code.OK
    assert core.handled == []


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ResponseCode.SYSTEM_ERROR, Code.INVALID_TRANSACTION_ID),
        (ResponseCode.ILLEGAL_OPERATION, Code.INVALID_TRANSACTION_ID),
        (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS),
        (ResponseCode.SLAVE_NOT_AVAILABLE, Code.HA_NOT_AVAILABLE),
    ],
)
async def test_end_status_follows_the_reply_of_the_broker(answer: int, code: int) -> None:
    core = FakeCore(answer=lambda command: commands.response(answer, remark="no"))
    assert await end_transaction(core) == code


async def test_transaction_id_of_another_proxy_is_rejected() -> None:
    with pytest.raises(Refused) as refused:
        await end_transaction(FakeCore(), transaction_id="01B67A92C1F5B04E2A06000000000000")
    assert refused.value.code == Code.INVALID_TRANSACTION_ID
