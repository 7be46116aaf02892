"""Requests to clients that they do not answer: the timeout, and the code for a tool."""

from remoting.codes import ResponseCode
from remoting.errors import ConnectionLost, RemotingError, RequestTimeout

# The brokers' own timeout for a client's reply, in seconds.
CLIENT_TIMEOUT = 10.0


def failure_code(error: BaseException) -> ResponseCode:
    """Return the code for a tool whose request a client has not answered (RocketMQ's AdminBrokerProcessor)."""
    if isinstance(error, RequestTimeout):
        return ResponseCode.CONSUME_MSG_TIMEOUT
    if isinstance(error, ConnectionLost) or not isinstance(error, RemotingError):
        return ResponseCode.SYSTEM_ERROR
    return error.code
