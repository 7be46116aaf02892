"""Statuses of v2 responses, from errors and from brokers' replies.

A business error is a successful gRPC call with a status in its response. A gRPC status is used only for errors of the
gRPC protocol itself.
"""

from collections.abc import Iterable
from typing import Final

from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.compilation import mypyc_attr
from remoting.errors import (
    BodyError,
    ConnectionLost,
    CredentialExpired,
    RemotingError,
    RequestTimeout,
    TopicNotExist,
)


@mypyc_attr(allow_interpreted_subclasses=True)
class Refused(Exception):
    """An rpc, or one entry of it, is rejected with a v2 code and a message for the client."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


# For every reply: reading a member from its enum is slow.
_SUCCESS: Final = int(ResponseCode.SUCCESS)

OK: Final = Status(code=Code.OK, message="OK")

_CODES: Final[dict[int, Code]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.MESSAGE_ILLEGAL: Code.MESSAGE_CORRUPTED,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.INVALID_PARAMETER: Code.BAD_REQUEST,
    ResponseCode.ILLEGAL_OPERATION: Code.BAD_REQUEST,
    ResponseCode.LMQ_QUOTA_EXCEEDED: Code.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}
# Errors whose type is more specific than their response code.
_ERROR_CODES: Final[tuple[tuple[type[RemotingError], Code], ...]] = (
    (BodyError, Code.INTERNAL_SERVER_ERROR),
    (CredentialExpired, Code.UNAUTHORIZED),
    # The broker may have served the request.
    (RequestTimeout, Code.PROXY_TIMEOUT),
    (ConnectionLost, Code.PROXY_TIMEOUT),
)


def status(code: Code, message: str = "") -> Status:
    """Return a status; the message defaults to the code's name."""
    return Status(code=code, message=message or Code.Name(code))


def status_from_reply(reply: RemotingCommand) -> Status:
    """Return the status of a broker's reply."""
    if reply.code == _SUCCESS:
        return OK
    return status(_CODES.get(reply.code, Code.INTERNAL_SERVER_ERROR), reply.remark or f"response code {reply.code}")


def status_from_error(error: Exception) -> Status:
    """Return the status of an error; only Refused and RemotingError show their text to the client."""
    if isinstance(error, Refused):
        return status(error.code, str(error))
    if isinstance(error, TopicNotExist) and error.topic is not None:
        # As MQClientException, whose text the official proxy returns for a topic without a route.
        return status(Code.TOPIC_NOT_FOUND, f"CODE: {error.code}  DESC: {error}")
    if isinstance(error, RemotingError):
        code = next((code for kind, code in _ERROR_CODES if isinstance(error, kind)), None)
        if code is None:
            code = _CODES.get(error.code, Code.INTERNAL_SERVER_ERROR)
        return status(code, str(error))
    return status(Code.INTERNAL_SERVER_ERROR, "internal error")


def combined_status(statuses: Iterable[Status]) -> Status:
    """Return the status of a response from those of its entries; MULTIPLE_RESULTS if their codes differ."""
    entries = list(statuses)
    if len(entries) == 1:
        return entries[0]
    codes = {entry.code for entry in entries}
    if len(codes) > 1:
        return status(Code.MULTIPLE_RESULTS)
    return entries[0] if entries else status(Code.INTERNAL_SERVER_ERROR, "ack message result is empty")
