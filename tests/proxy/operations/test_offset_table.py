"""Offset tables, as brokers of RocketMQ 5.4 write them."""

import pytest

from proxy.operations.groups.offset_table import QueueKey, offset_table, progress
from remoting.errors import BodyError

QUEUES = 15_000


def rows(count: int, value: str, broker: str = "broker-a") -> str:
    return ",".join(
        f'{{"brokerName":"{broker}","queueId":{number},"topic":"orders"}}:{value}' for number in range(count)
    )


def test_table_of_a_topic_with_many_queues_is_read() -> None:
    value = '{"lastUpdateTimestamp":1764333333333,"maxOffset":5,"minOffset":2}'
    found = offset_table(f'{{"offsetTable":{{{rows(QUEUES, value)}}},"topicPutTps":0.0}}'.encode())
    assert len(found) == QUEUES
    assert found[-1] == (
        QueueKey("orders", "broker-a", QUEUES - 1),
        {"lastUpdateTimestamp": 1764333333333, "maxOffset": 5, "minOffset": 2},
    )


def test_progress_of_a_group_in_many_queues_is_read() -> None:
    value = '{"brokerOffset":9,"consumerOffset":4,"lastTimestamp":0,"pullOffset":4}'
    found = progress(f'{{"consumeTps":0.0,"offsetTable":{{{rows(QUEUES, value)}}}}}'.encode())
    assert (len(found), found[-1].key.queue, found[-1].lag) == (QUEUES, QUEUES - 1, 5)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ('{"offsetTable":{ROWS,},"more":[{}]}', '{"maxOffset":7}'),
        ('{"more":[{"offsetTable":{}}],"offsetTable":{ROWS}}', '{"maxOffset":7}'),
        ('{"offsetTable": { ROWS } }', '{"maxOffset":7}'),
        ('{"offsetTable":{ROWS}}', '{"maxOffset":7,"more":{"a":1}}'),
        ('{"offsetTable":{ROWS}}', "{maxOffset:7}"),
        ('{"a":{"maxOffset":7},"offsetTable":{ROWS}}', '{"$ref":"$.a"}'),
    ],
)
def test_other_forms_of_a_table_are_read(form: str, value: str) -> None:
    [(key, found)] = offset_table(form.replace("ROWS", rows(1, value)).encode())
    assert (key, found["maxOffset"]) == (QueueKey("orders", "broker-a", 0), 7)


def test_names_may_contain_any_characters() -> None:
    name = r"a}:{b,\"]"
    [(key, _)] = offset_table(f'{{"offsetTable":{{{rows(1, "{}", name)}}}}}'.encode())
    assert key.broker == 'a}:{b,"]'
    [(key, _)] = offset_table(f'{{"offsetTable":{{{rows(1, "{}", "a}:{b,]")}}}}}'.encode())
    assert key.broker == "a}:{b,]"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"offsetTable":{}}', b'{"offsetTable":null}'])
def test_empty_tables_have_no_rows(body: bytes) -> None:
    assert offset_table(body) == []


@pytest.mark.parametrize("body", [b'{"offsetTable":{{"queueId":0}:{}', b'{"offsetTable":{{"queueId":0}:{"a":}}}'])
def test_broken_tables_are_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        offset_table(body)
