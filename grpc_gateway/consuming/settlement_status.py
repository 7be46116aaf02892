"""Statuses of settlements (acknowledgement, change of the invisible duration, dead letter).

Consumers retry a failed acknowledgement or change forever unless its status is INVALID_RECEIPT_HANDLE, so that is the
status of every error that a retry does not change. They retry a dead letter after any error.
"""

from typing import Final

from grpc_gateway.response_status import status, status_from_error, status_from_reply
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError

_PERMANENT: Final = frozenset(
    (
        ResponseCode.NO_MESSAGE,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    )
)
# For every acknowledgement: reading a member from its enum is slow.
_SYSTEM_ERROR: Final = int(ResponseCode.SYSTEM_ERROR)
# Remark of the SYSTEM_ERROR of a broker that no longer has the message (SendMessageProcessor).
_MESSAGE_DELETED: Final = "look message by offset failed"


def settlement_status(reply: RemotingCommand) -> Status:
    """Return the status of a broker's reply to a settlement."""
    if reply.code in _PERMANENT or (reply.code == _SYSTEM_ERROR and _MESSAGE_DELETED in (reply.remark or "")):
        return status(Code.INVALID_RECEIPT_HANDLE, reply.remark or "the broker no longer has the message")
    return status_from_reply(reply)


def settlement_error_status(error: Exception) -> Status:
    """Return the status of a settlement that failed with an error."""
    if isinstance(error, RemotingError) and error.code in _PERMANENT:
        return status(Code.INVALID_RECEIPT_HANDLE, str(error))
    return status_from_error(error)
