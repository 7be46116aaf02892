"""Statuses: which v2 code tells a gRPC client what went wrong.

A business error is a gRPC call that succeeded with a status in its response; only what breaks the
contract of gRPC itself is a gRPC status.
"""

from collections.abc import Iterable

from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, ConnectionLost, RemotingError, RequestTimeout


class Refused(Exception):
    """An rpc, or one entry of it, cannot be served; `code` and the text are the client's to read."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


OK = Status(code=Code.OK, message="OK")

_RESPONSES: dict[int, Code] = {
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
# What our own errors say where their response code says less.
_ERRORS: tuple[tuple[type[RemotingError], Code], ...] = (
    (BodyError, Code.INTERNAL_SERVER_ERROR),
    # Whether it was served is unknown.
    (RequestTimeout, Code.PROXY_TIMEOUT),
    (ConnectionLost, Code.PROXY_TIMEOUT),
)


def status(code: Code, message: str = "") -> Status:
    """A status; without a text it is the code's name."""
    return Status(code=code, message=message or Code.Name(code))


def of_response(reply: RemotingCommand) -> Status:
    """What a broker's answer says."""
    if reply.code == ResponseCode.SUCCESS:
        return OK
    return status(_RESPONSES.get(reply.code, Code.INTERNAL_SERVER_ERROR), reply.remark or f"response code {reply.code}")


def of_error(error: Exception) -> Status:
    """What an error says: of a `Refused` itself, of a RemotingError what the table has for it."""
    if isinstance(error, Refused):
        return status(error.code, str(error))
    if isinstance(error, RemotingError):
        code = next((code for kind, code in _ERRORS if isinstance(error, kind)), None)
        if code is None:
            code = _RESPONSES.get(error.code, Code.INTERNAL_SERVER_ERROR)
        return status(code, str(error))
    return status(Code.INTERNAL_SERVER_ERROR, "internal error")


def joint(statuses: Iterable[Status]) -> Status:
    """The status of a response with one status per entry: theirs where they agree, else MULTIPLE_RESULTS."""
    found = list(statuses)
    codes = {one.code for one in found}
    if len(codes) > 1:
        return status(Code.MULTIPLE_RESULTS)
    return found[0] if found else status(Code.INTERNAL_SERVER_ERROR, "nothing was asked for")
