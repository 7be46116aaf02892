from remoting.codes import RequestCode
from remoting.request_kinds import Created, RequestKind
from remoting.requests import (
    DELIVERIES,
    INTERNAL_REQUESTS,
    POPS,
    PULLS,
    RECEIVES,
    REQUESTS,
    SEND_FIELD_NAMES,
    SENDS,
    SETTLEMENTS,
    codes_of,
    request_spec,
)
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


def test_the_kinds_of_requests() -> None:
    code = RequestCode
    assert {code.PULL_MESSAGE, code.LITE_PULL_MESSAGE} == PULLS
    assert {code.POP_MESSAGE, code.POP_LITE_MESSAGE} == POPS
    assert PULLS | POPS == DELIVERIES
    assert {*DELIVERIES, code.PEEK_MESSAGE} == RECEIVES
    stored = {code.SEND_MESSAGE, code.SEND_MESSAGE_V2, code.SEND_BATCH_MESSAGE}
    assert codes_of(RequestKind.SEND) == stored
    assert {*stored, code.SEND_REPLY_MESSAGE, code.SEND_REPLY_MESSAGE_V2} == SENDS == SEND_FIELD_NAMES.keys()
    assert {
        code.ACK_MESSAGE,
        code.BATCH_ACK_MESSAGE,
        code.CHANGE_MESSAGE_INVISIBLETIME,
        code.CONSUMER_SEND_MSG_BACK,
        code.UPDATE_CONSUMER_OFFSET,
    } == SETTLEMENTS
    assert codes_of(RequestKind.LOOKUP) == {code.QUERY_MESSAGE, code.VIEW_MESSAGE_BY_ID}


def test_brokers_create_the_topics_of_sends_and_the_groups_of_consumers() -> None:
    assert {row.code: row.creates for row in REQUESTS.values() if row.creates is not None} == {
        **dict.fromkeys(codes_of(RequestKind.SEND), Created.TOPIC),
        **dict.fromkeys((*DELIVERIES, RequestCode.CONSUMER_SEND_MSG_BACK), Created.GROUP),
    }
