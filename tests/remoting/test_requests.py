from remoting.codes import RequestCode
from remoting.requests import INTERNAL_REQUESTS, REQUESTS, SEND_FIELD_NAMES, request_spec
from remoting.send_message import V1, V2


def test_each_request_code_has_exactly_one_row() -> None:
    assert not REQUESTS.keys() & INTERNAL_REQUESTS.keys()
    assert REQUESTS.keys() | INTERNAL_REQUESTS.keys() == set(RequestCode)
    for code in RequestCode:
        assert request_spec(code).code is code


def test_each_row_names_fields_of_its_own_version() -> None:
    assert SEND_FIELD_NAMES == {
        RequestCode.SEND_MESSAGE: V1,
        RequestCode.SEND_REPLY_MESSAGE: V1,
        RequestCode.SEND_MESSAGE_V2: V2,
        RequestCode.SEND_REPLY_MESSAGE_V2: V2,
        RequestCode.SEND_BATCH_MESSAGE: V2,
    }
    for code, names in SEND_FIELD_NAMES.items():
        spec = REQUESTS[code]
        assert (spec.topic, spec.group, spec.broker) == (names.topic, names.producer_group, names.broker)
