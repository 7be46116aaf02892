"""Which v2 status tells a caller what went wrong."""

from grpc_gateway import response_status as status
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from proxy.operations.client_tools import ClientRefused
from proxy.operations.failures import OperationFailed
from proxy.operations.operator_channel import BrokerRefused
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import ConsumerNotOnline, RemotingError

# What brokers answer that clients are never told.
_ANSWERS: dict[int, Code] = {
    ResponseCode.CONSUMER_NOT_ONLINE: Code.NOT_FOUND,
    ResponseCode.QUERY_NOT_FOUND: Code.NOT_FOUND,
}
# The first that fits.
_KINDS: tuple[tuple[type[Exception], Code], ...] = (
    (ConsumerNotOnline, Code.NOT_FOUND),
    (ClientRefused, Code.INTERNAL_ERROR),
    (TimeoutError, Code.PROXY_TIMEOUT),
)


def status_of(error: Exception) -> Status:
    """What an error says; INTERNAL_SERVER_ERROR and no word of it where it is a mistake of ours."""
    if isinstance(error, BrokerRefused):
        known = _ANSWERS.get(error.answer)
        if known is not None:
            return status.status(known, str(error))
        return status.status_from_reply(commands.response(error.answer, remark=str(error)))
    for kind, code in _KINDS:
        if isinstance(error, kind):
            return status.status(code, str(error) or "no answer came in time")
    return status.status_from_error(error)


def is_mistake(error: Exception) -> bool:
    """Whether an error is none that was to be expected."""
    return not isinstance(error, status.Refused | RemotingError | OperationFailed | TimeoutError)
