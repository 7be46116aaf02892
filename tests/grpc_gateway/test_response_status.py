import pytest

from grpc_gateway import response_status
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
    no_route,
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
def test_error_has_the_code_of_its_type(error: Exception, code: int) -> None:
    result = response_status.status_from_error(error)
    assert (result.code, result.message) == (code, "why")


def test_topic_without_a_route_has_the_text_of_the_official_proxy() -> None:
    result = response_status.status_from_error(no_route("t"))
    text = "CODE: 17  DESC: No topic route info in name server for the topic: t"
    assert (result.code, result.message) == (Code.TOPIC_NOT_FOUND, text)


def test_unexpected_error_hides_its_text() -> None:
    result = response_status.status_from_error(ValueError("secret"))
    assert (result.code, result.message) == (Code.INTERNAL_SERVER_ERROR, "internal error")


def test_reply_has_the_code_of_its_response_code() -> None:
    assert response_status.status_from_reply(commands.success()).code == Code.OK
    busy = response_status.status_from_reply(commands.response(ResponseCode.SYSTEM_BUSY))
    assert (busy.code, busy.message) == (Code.TOO_MANY_REQUESTS, "response code 2")


def test_combined_status_of_different_codes_is_multiple_results() -> None:
    busy = response_status.status(Code.TOO_MANY_REQUESTS)
    assert response_status.combined_status([response_status.OK, response_status.OK]).code == Code.OK
    assert response_status.combined_status([busy]).code == Code.TOO_MANY_REQUESTS
    assert response_status.combined_status([response_status.OK, busy]).code == Code.MULTIPLE_RESULTS
    assert response_status.combined_status([]).code == Code.INTERNAL_SERVER_ERROR
    assert busy.message == "TOO_MANY_REQUESTS"
