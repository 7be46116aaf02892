from dataclasses import astuple

from remoting.codes import RequestCode
from remoting.requests import REQUESTS
from remoting.send_message import V1, V2, send_fields


def test_version_2_abbreviates_each_name_to_one_letter() -> None:
    # SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2.
    assert dict(zip(astuple(V1), astuple(V2), strict=True)) == {
        "producerGroup": "a",
        "topic": "b",
        "defaultTopic": "c",
        "defaultTopicQueueNums": "d",
        "queueId": "e",
        "sysFlag": "f",
        "bornTimestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsumeTimes": "j",
        "unitMode": "k",
        "maxReconsumeTimes": "l",
        "batch": "m",
        "bname": "n",
    }


def test_send_fields_spell_every_value_as_text() -> None:
    fields = send_fields(
        producer_group="producers",
        topic="orders",
        queue_id=3,
        broker="broker-a",
        born_timestamp=1_700_000_000_000,
        sys_flag=1,
        flag=7,
        properties="TAGS\x01red",
    )
    assert fields == {
        "a": "producers",
        "b": "orders",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "1",
        "g": "1700000000000",
        "h": "7",
        "i": "TAGS\x01red",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }


def test_send_fields_without_queue_and_broker_leave_them_out() -> None:
    fields = send_fields(producer_group="producers", topic="orders", born_timestamp=0, batch=True)
    assert not {V2.queue_id, V2.broker} & fields.keys()
    assert fields[V2.batch] == "true"


def test_send_fields_satisfy_the_request_table() -> None:
    fields = send_fields(producer_group="producers", topic="orders", queue_id=0, broker="broker-a", born_timestamp=0)
    assert REQUESTS[RequestCode.SEND_MESSAGE_V2].required <= fields.keys()


def test_send_fields_of_a_call_do_not_appear_in_the_next() -> None:
    send_fields(
        producer_group="producers",
        topic="orders",
        queue_id=3,
        broker="broker-a",
        born_timestamp=5,
        sys_flag=1,
        flag=7,
        default_topic_queues=1,
        batch=True,
        properties="TAGS\x01red",
    )
    fields = send_fields(producer_group="others", topic="payments", born_timestamp=6)
    assert fields == {
        "a": "others",
        "b": "payments",
        "c": "TBW102",
        "d": "4",
        "f": "0",
        "g": "6",
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "false",
    }
