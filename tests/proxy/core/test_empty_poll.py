import pytest

from proxy.core.empty_poll import empty_poll
from remoting.codes import RequestCode, ResponseCode
from remoting.requests import REQUESTS


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
def test_empty_pull_repeats_the_offset_with_all_fields_that_clients_require(code: RequestCode) -> None:
    reply = empty_poll(REQUESTS[code], {"queueOffset": "7"}, "why")
    assert (reply.code, reply.remark) == (ResponseCode.PULL_NOT_FOUND, "why")
    assert reply.fields == {"nextBeginOffset": "7", "minOffset": "0", "maxOffset": "7", "suggestWhichBrokerId": "0"}


def test_empty_pop_and_notification_are_no_errors() -> None:
    popped = empty_poll(REQUESTS[RequestCode.POP_MESSAGE], {}, "why")
    assert popped.code == ResponseCode.POLLING_TIMEOUT
    assert popped.fields == dict.fromkeys(("popTime", "invisibleTime", "reviveQid", "restNum"), "0")
    notified = empty_poll(REQUESTS[RequestCode.NOTIFICATION], {}, "why")
    assert (notified.code, notified.fields["hasMsg"]) == (ResponseCode.SUCCESS, "false")
