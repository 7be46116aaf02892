import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.producing.half_messages import HalfMessages
from grpc_gateway.producing.transaction_service import TransactionService
from grpc_gateway.response_status import Refused
from grpc_gateway.transaction_id import TransactionId
from protos.apache.rocketmq.v2.definition_pb2 import Code, TransactionResolution, TransactionSource
from protos.apache.rocketmq.v2.service_pb2 import EndTransactionRequest
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RequestTimeout
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


TRANSACTION = TransactionId("broker-a", 7, 4711, "01AB")
COMMIT, ROLLBACK = TransactionResolution.COMMIT, TransactionResolution.ROLLBACK
UNDECIDED = TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED


async def end_transaction(core: FakeCore, service: TransactionService | None = None, **more: object) -> int:
    fields_of_request: dict[str, Any] = {"transaction_id": str(TRANSACTION), "resolution": COMMIT, **more}
    request = EndTransactionRequest(topic=resource(), message_id="01AB", **fields_of_request)
    response = await (service or TransactionService(core, HalfMessages(core))).end(make_rpc(), request)
    return response.status.code


class EndHarness:
    """A service that remembers what it has ended. answer: the broker's answer."""

    def __init__(self) -> None:
        self.answer: RemotingCommand | Exception = commands.success()
        self.core = FakeCore(answer=lambda command: self.answer)
        self.half_messages = HalfMessages(self.core)
        self.service = TransactionService(self.core, self.half_messages)

    async def end(self, resolution: int = COMMIT, transaction: TransactionId = TRANSACTION) -> int:
        return await end_transaction(self.core, self.service, resolution=resolution, transaction_id=str(transaction))

    async def end_again(self, resolution: int = COMMIT, transaction: TransactionId = TRANSACTION) -> None:
        """End a transaction that has ended, which must be refused as by the official proxy."""
        sent = len(self.core.handled)
        with pytest.raises(Refused, match=r"^cannot found transaction data$") as refused:
            await self.end(resolution, transaction)
        assert refused.value.code == Code.INTERNAL_SERVER_ERROR
        assert len(self.core.handled) == sent


@pytest.mark.parametrize(("resolution", "flag"), [(COMMIT, "8"), (ROLLBACK, "12")])
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
    assert await end_transaction(core, resolution=UNDECIDED) == Code.OK
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


# A second end.


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK, UNDECIDED])
async def test_second_end_is_refused(first: int, second: int) -> None:
    harness = EndHarness()
    assert await harness.end(first) == Code.OK
    await harness.end_again(second)
    assert len(harness.core.handled) == 1


async def test_other_transactions_are_not_affected_by_an_end() -> None:
    harness = EndHarness()
    await harness.end()
    assert await harness.end(transaction=TransactionId("broker-a", 8, 4800, "01CD")) == Code.OK
    assert await harness.end(transaction=TransactionId("broker-b", 7, 4711, "01AB")) == Code.OK


async def test_undecided_transaction_is_ended_later() -> None:
    harness = EndHarness()
    assert await harness.end(UNDECIDED) == Code.OK
    assert await harness.end(COMMIT) == Code.OK
    assert len(harness.core.handled) == 1


@pytest.mark.parametrize(
    "failure",
    [
        RequestTimeout("no answer"),
        commands.response(ResponseCode.SYSTEM_BUSY, remark="busy"),
        commands.response(ResponseCode.SYSTEM_ERROR, remark="not found"),
    ],
)
async def test_failed_end_can_be_repeated_once(failure: RemotingCommand | Exception) -> None:
    harness = EndHarness()
    harness.answer = failure
    if isinstance(failure, Exception):
        with pytest.raises(RequestTimeout):
            await harness.end()
    else:
        assert await harness.end() != Code.OK
    harness.answer = commands.success()
    assert await harness.end() == Code.OK
    await harness.end_again()


async def test_end_that_is_not_sent_can_be_repeated() -> None:
    harness = EndHarness()
    answer = harness.core.answer

    def fail(command: RemotingCommand) -> RemotingCommand:
        raise RequestTimeout("not sent")

    # At once, and not by the future of the reply.
    harness.core.answer = fail
    with pytest.raises(RequestTimeout):
        await harness.end()
    harness.core.answer = answer
    assert await harness.end() == Code.OK


async def test_second_end_is_refused_while_the_first_one_waits() -> None:
    harness = EndHarness()
    harness.core.pending = []
    first = asyncio.ensure_future(harness.end(ROLLBACK))
    await asyncio.sleep(0)
    await harness.end_again(COMMIT)
    harness.core.pending[0].set_result(commands.success())
    assert await first == Code.OK


@pytest.mark.parametrize("ended", [True, False])
async def test_end_of_a_client_that_does_not_wait_counts_by_the_answer_of_the_broker(ended: bool) -> None:
    harness = EndHarness()
    pending = harness.core.pending = []
    first = asyncio.ensure_future(harness.end(ROLLBACK))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await harness.end_again()
    pending[0].set_result(commands.response(ResponseCode.SUCCESS if ended else ResponseCode.SYSTEM_BUSY))
    await asyncio.sleep(0)
    harness.core.pending = None
    if ended:
        await harness.end_again()
    else:
        assert await harness.end() == Code.OK


async def test_transaction_that_the_broker_checks_can_be_ended_again() -> None:
    harness = EndHarness()
    await harness.end()
    harness.service.checked("orders", TRANSACTION)
    assert await harness.end() == Code.OK
    await harness.end_again()


async def test_id_of_a_later_check_at_another_replica_ends_the_transaction_again() -> None:
    harness = EndHarness()
    await harness.end()
    # The broker has stored the half message again.
    later = TransactionId("broker-a", 9, 5000, "01AB")
    assert await harness.end(transaction=later) == Code.OK
    await harness.end_again(transaction=later)
    await harness.end_again(ROLLBACK)


async def test_failed_end_by_the_id_of_a_check_leaves_the_earlier_end() -> None:
    harness = EndHarness()
    await harness.end(ROLLBACK)
    harness.answer = commands.response(ResponseCode.SYSTEM_ERROR)
    await harness.end(transaction=TransactionId("broker-a", 9, 5000, "01AB"))
    await harness.end_again(COMMIT)


# Ids of messages as ids of transactions.


async def test_half_message_of_this_process_is_ended_by_the_id_of_its_message() -> None:
    harness = EndHarness()
    harness.half_messages.add("orders", TRANSACTION)
    assert await end_transaction(harness.core, harness.service, transaction_id="01AB") == Code.OK
    [(_, code, fields, _)] = harness.core.handled
    assert code == RequestCode.END_TRANSACTION
    assert [fields[name] for name in ("bname", "tranStateTableOffset", "commitLogOffset", "transactionId")] == [
        "broker-a",
        "7",
        "4711",
        "01AB",
    ]
    # The id with the place of the half message, as older replicas issue it, stands for the same transaction.
    await harness.end_again()


async def test_id_of_the_message_ends_the_half_message_of_the_latest_check() -> None:
    harness = EndHarness()
    harness.half_messages.add("orders", TRANSACTION)
    harness.service.checked("orders", TransactionId("broker-a", 9, 5000, "01AB"))
    assert await end_transaction(harness.core, harness.service, transaction_id="01AB") == Code.OK
    assert harness.core.fields[0]["commitLogOffset"] == "5000"
