"""EndTransaction: commits and rolls back transactions, on any replica."""

import asyncio
from functools import partial

from grpc_gateway import validation
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.core import Core
from grpc_gateway.producing.ended_transactions import EndedTransactions
from grpc_gateway.producing.half_messages import HalfMessages
from grpc_gateway.response_status import OK, Refused, status, status_from_reply
from grpc_gateway.transaction_id import TransactionId
from protos.apache.rocketmq.v2.definition_pb2 import Code, TransactionResolution, TransactionSource
from protos.apache.rocketmq.v2.service_pb2 import EndTransactionRequest, EndTransactionResponse
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.messages import SysFlag

# Codes of replies to END_TRANSACTION that a retry does not change.
_PERMANENT = (ResponseCode.SYSTEM_ERROR, ResponseCode.ILLEGAL_OPERATION)
_FLAGS = {
    TransactionResolution.COMMIT: int(SysFlag.TRANSACTION_COMMIT),
    TransactionResolution.ROLLBACK: int(SysFlag.TRANSACTION_ROLLBACK),
}


class TransactionService:
    """Serves commits and rollbacks."""

    def __init__(self, core: Core, half_messages: HalfMessages) -> None:
        self._core = core
        self._half_messages = half_messages
        self._ended = EndedTransactions()

    async def end(self, rpc: Rpc, request: EndTransactionRequest) -> EndTransactionResponse:
        """Send the outcome to the broker, and wait for its reply. Raises Refused, RemotingError."""
        topic = validation.topic(request.topic)
        transaction = await self._transaction(topic, request.transaction_id)
        if self._ended.ended(topic, transaction):
            # Code and text are the official proxy's.
            raise Refused(Code.INTERNAL_SERVER_ERROR, "cannot found transaction data")
        flag = _FLAGS.get(request.resolution)
        if flag is None:
            # Undecided: the broker repeats its transaction check. It sends no reply to this outcome.
            return EndTransactionResponse(status=OK)
        command = commands.request(
            RequestCode.END_TRANSACTION,
            {
                "topic": topic,
                "producerGroup": topic,
                "tranStateTableOffset": str(transaction.queue_offset),
                "commitLogOffset": str(transaction.commit_log_offset),
                "commitOrRollback": str(flag),
                "fromTransactionCheck": str(request.source == TransactionSource.SOURCE_SERVER_CHECK).lower(),
                "msgId": request.message_id or transaction.message_id,
                "transactionId": transaction.message_id,
                "bname": transaction.broker,
            },
        )
        pending = rpc.dispatch(self._core, command)
        # From here on, so that a second end is refused while the broker has not answered.
        self._ended.add(topic, transaction, rpc.peer.address)
        if pending.done():
            self._replied(topic, transaction, pending)
        else:
            pending.add_done_callback(partial(self._replied, topic, transaction))
        # The broker's answer counts also if the client does not wait for it.
        reply = await rpc.wait_for(asyncio.shield(pending), transaction.broker)
        if reply.code in _PERMANENT:
            return EndTransactionResponse(status=status(Code.INVALID_TRANSACTION_ID, reply.remark or ""))
        return EndTransactionResponse(status=status_from_reply(reply))

    def checked(self, topic: str, transaction: TransactionId) -> None:
        """Let a transaction be ended again, because its broker asks for the outcome.

        Before that, the broker stores the half message again: the end of the earlier one would not end the checks.
        """
        self._half_messages.add(topic, transaction)
        self._ended.checked(topic, transaction)

    async def _transaction(self, topic: str, text: str) -> TransactionId:
        """Return the transaction with this id. Raises Refused, RemotingError."""
        known = self._half_messages.known(topic, text)
        if known is not None:
            return known
        try:
            return TransactionId.parse(text)
        except Refused as error:
            refused = error
        transaction = await self._half_messages.look_up(topic, text) if text.strip() else None
        if transaction is None:
            raise refused
        return transaction

    def _replied(self, topic: str, transaction: TransactionId, reply: "asyncio.Future[RemotingCommand]") -> None:
        if reply.cancelled() or reply.exception() is not None or reply.result().code != ResponseCode.SUCCESS:
            self._ended.undo(topic, transaction)
