"""EndTransaction: commits and rollbacks, at whichever replica they arrive."""

from grpc_gateway import validation
from grpc_gateway.call import Call
from grpc_gateway.core import Core
from grpc_gateway.producing.transaction_id import TransactionId
from grpc_gateway.status import OK, of_response, status
from protos.apache.rocketmq.v2.definition_pb2 import Code, TransactionResolution, TransactionSource
from protos.apache.rocketmq.v2.service_pb2 import EndTransactionRequest, EndTransactionResponse
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.messages import SysFlag

# Answers to an END_TRANSACTION that no other try will change.
_FINAL = (ResponseCode.SYSTEM_ERROR, ResponseCode.ILLEGAL_OPERATION)
_ENDS = {
    TransactionResolution.COMMIT: int(SysFlag.TRANSACTION_COMMIT),
    TransactionResolution.ROLLBACK: int(SysFlag.TRANSACTION_ROLLBACK),
}


class Transactions:
    """Commits and rollbacks."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def end(self, call: Call, request: EndTransactionRequest) -> EndTransactionResponse:
        """Tell the broker how a transaction ended, and answer when it knows."""
        topic = validation.topic(request.topic)
        transaction = TransactionId.parse(request.transaction_id)
        resolution = _ENDS.get(request.resolution)
        if resolution is None:
            # Undecided: the broker will ask again. It does not answer to this.
            return EndTransactionResponse(status=OK)
        command = commands.request(
            RequestCode.END_TRANSACTION,
            {
                "topic": topic,
                "producerGroup": topic,
                "tranStateTableOffset": str(transaction.queue_offset),
                "commitLogOffset": str(transaction.commit_log_offset),
                "commitOrRollback": str(resolution),
                "fromTransactionCheck": str(request.source == TransactionSource.SOURCE_SERVER_CHECK).lower(),
                "msgId": request.message_id or transaction.message_id,
                "transactionId": transaction.message_id,
                "bname": transaction.broker,
            },
        )
        answer = await call.ask(self._core, command, transaction.broker)
        if answer.code in _FINAL:
            return EndTransactionResponse(status=status(Code.INVALID_TRANSACTION_ID, answer.remark or ""))
        return EndTransactionResponse(status=of_response(answer))
