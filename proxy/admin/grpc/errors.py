"""v2 statuses of errors."""

from grpc_gateway import response_status as status
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from proxy.operations.broker_requests import BrokerRefused
from proxy.operations.client_tools import ClientRefused
from proxy.operations.failures import OperationFailed
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import ConsumerNotOnline, RemotingError

# Response codes of brokers that clients never get.
_ANSWERS: dict[int, Code] = {
    ResponseCode.CONSUMER_NOT_ONLINE: Code.NOT_FOUND,
    ResponseCode.QUERY_NOT_FOUND: Code.NOT_FOUND,
}
# The first match wins.
_KINDS: tuple[tuple[type[Exception], Code], ...] = (
    (ConsumerNotOnline, Code.NOT_FOUND),
    (ClientRefused, Code.INTERNAL_ERROR),
    (TimeoutError, Code.PROXY_TIMEOUT),
)


class Denied(Exception):
    """The caller lacks permission, which is a gRPC status of its own. reason: for the metric."""

    def __init__(self, code: Code, reason: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.reason = reason


def status_of(error: Exception) -> Status:
    """Return the status of an error; an internal error is INTERNAL_SERVER_ERROR without details."""
    if isinstance(error, BrokerRefused):
        known = _ANSWERS.get(error.answer)
        if known is not None:
            return status.status(known, str(error))
        return status.status_from_reply(commands.response(error.answer, remark=str(error)))
    for kind, code in _KINDS:
        if isinstance(error, kind):
            return status.status(code, str(error) or "no answer came in time")
    return status.status_from_error(error)


def is_unexpected(error: Exception) -> bool:
    """Return whether an error is unexpected."""
    return not isinstance(error, status.Refused | RemotingError | OperationFailed | TimeoutError)
