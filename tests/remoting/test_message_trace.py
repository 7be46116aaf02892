"""The codec of trace records."""

import pytest

from remoting.errors import BodyError
from remoting.message_trace import ConsumptionEnd, ConsumptionStart, Publication, decode, encode

_SENT = Publication(1, "R", "shop", "orders", "id", "A", "k1 k2", "192.0.2.1:10911", 3, 2, 0, "offset", True)
_BEGUN = ConsumptionStart(5, "R", "billing", "request", "id", 1, "k1")
_ENDED = ConsumptionEnd("request", "id", 7, False, "k1", 4, 12, "billing")
# As the Java client 5.4 writes them.
_JAVA = (
    "Pub\x011\x01R\x01shop\x01orders\x01id\x01A\x01k1 k2\x01192.0.2.1:10911\x013\x012\x010\x01offset\x01true\x02"
    "SubBefore\x015\x01R\x01billing\x01request\x01id\x011\x01k1\x02"
    "SubAfter\x01request\x01id\x017\x01false\x01k1\x014\x0112\x01billing\x02"
)


def test_records_have_the_official_form() -> None:
    assert encode(_SENT) + encode(_BEGUN) + encode(_ENDED) == _JAVA
    assert decode(_JAVA.encode()) == [_SENT, _BEGUN, _ENDED]


def test_records_of_old_and_other_clients_are_read() -> None:
    old = "Pub\x011\x01R\x01g\x01t\x01id\x01\x01\x01host\x013\x012\x010\x01true\x02SubAfter\x01r\x01id\x017\x01true\x02"
    sent, ended = decode(old.encode() + b"EndTransaction\x01x\x02")
    assert isinstance(sent, Publication)
    assert (sent.success, sent.offset_message_id) == (True, "")
    assert ended == ConsumptionEnd("r", "id", 7, True, "", 0)


def test_delivery_without_keys_has_no_empty_field_at_its_end() -> None:
    record = ConsumptionStart(5, "R", "g", "r", "id", 0, "")
    assert encode(record).endswith("\x01null\x02")
    assert decode(encode(record).encode()) == [record]


def test_separators_in_keys_do_not_break_records() -> None:
    record = ConsumptionStart(5, "R", "g", "r", "id", 0, "a\x01b\x02c")
    assert decode(encode(record).encode()) == [ConsumptionStart(5, "R", "g", "r", "id", 0, "a b c")]


def test_records_of_other_messages_are_not_decoded() -> None:
    other = ConsumptionStart(5, "R", "g", "r", "id of another", 0, "")
    malformed = "Pub\x01x\x02"
    assert decode((malformed + encode(other) + encode(_SENT)).encode(), "id\x01") == [_SENT]


@pytest.mark.parametrize("body", [b"\xff", b"Pub\x01x\x02", b"SubBefore\x01\x02"])
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        decode(body)
