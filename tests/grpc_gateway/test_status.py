import pytest

from grpc_gateway import response_status as status
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import (
    BodyError,
    ConnectionLost,
    InvalidRequest,
    Overloaded,
    RequestTimeout,
    ServiceUnavailable,
    TopicNotExist,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused(Code.ILLEGAL_TOPIC, "why"), Code.ILLEGAL_TOPIC),
        (TopicNotExist("why"), Code.TOPIC_NOT_FOUND),
        (RequestTimeout("why"), Code.PROXY_TIMEOUT),
        (ConnectionLost("why"), Code.PROXY_TIMEOUT),
        (ServiceUnavailable("why"), Code.INTERNAL_SERVER_ERROR),
        (Overloaded("why"), Code.TOO_MANY_REQUESTS),
        (InvalidRequest("why"), Code.BAD_REQUEST),
        (BodyError("why"), Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_errors(error: Exception, code: int) -> None:
    found = status.status_from_error(error)
    assert (found.code, found.message) == (code, "why")


def test_a_failure_of_ours_tells_nothing() -> None:
    found = status.status_from_error(ValueError("secret"))
    assert (found.code, found.message) == (Code.INTERNAL_SERVER_ERROR, "internal error")


def test_responses() -> None:
    assert status.status_from_reply(commands.success()).code == Code.OK
    busy = status.status_from_reply(commands.response(ResponseCode.SYSTEM_BUSY))
    assert (busy.code, busy.message) == (Code.TOO_MANY_REQUESTS, "response code 2")


def test_entries_that_agree_and_that_do_not() -> None:
    busy = status.status(Code.TOO_MANY_REQUESTS)
    assert status.combined_status([status.OK, status.OK]).code == Code.OK
    assert status.combined_status([busy]).code == Code.TOO_MANY_REQUESTS
    assert status.combined_status([status.OK, busy]).code == Code.MULTIPLE_RESULTS
    assert status.combined_status([]).code == Code.INTERNAL_SERVER_ERROR
    assert busy.message == "TOO_MANY_REQUESTS"
