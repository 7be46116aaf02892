"""Checks of sends."""

import struct

import pytest

from proxy.core.context import Context
from proxy.core.send_checks import half_messages, lite_queues, records
from remoting import messages, properties
from remoting.codes import RequestCode
from remoting.errors import BodyError, InvalidRequest
from remoting.messages import SysFlag
from remoting.requests import REQUESTS, SEND_FIELD_NAMES
from tests.proxy.fakes import FakeChannel
from tests.proxy.messages import complete

SENDS = [REQUESTS[code] for code in SEND_FIELD_NAMES]


def context(code: int, fields: dict[str, str], body: bytes = b"") -> Context:
    command = complete(REQUESTS[code], **fields)
    command.body = body
    return Context(FakeChannel(), command, REQUESTS[code], 0.0)


@pytest.mark.anyio
@pytest.mark.parametrize("code", SEND_FIELD_NAMES)
async def test_sys_flags_of_clients_are_accepted(code: int) -> None:
    """Compression with its type, several tags, and the state of a transaction."""
    name = SEND_FIELD_NAMES[code].sys_flag
    for compression in (SysFlag(0), SysFlag.COMPRESSION_LZ4, SysFlag.COMPRESSION_ZSTD, SysFlag.COMPRESSION_ZLIB):
        for flag in (0, SysFlag.COMPRESSED, SysFlag.MULTI_TAGS, SysFlag.TRANSACTION_PREPARED):
            records(context(code, {name: str(int(flag | compression))}))


@pytest.mark.anyio
@pytest.mark.parametrize("code", SEND_FIELD_NAMES)
@pytest.mark.parametrize(
    "flag",
    [
        # Records whose hosts are longer than they are.
        *("16", "32", "48", "17"),
        # An inner batch.
        *("64", "128", "192"),
        # An unknown compression type.
        *("1025", "1793"),
        # Other numbers, and other spellings that Java reads.
        *("2048", "-1", "-2147483632", "+16", "016", "00", " 0", "0x10", "\u0661\u0666", "", "x" * 5000),
    ],
)
async def test_sys_flags_that_no_client_has_a_reason_for_are_rejected(code: int, flag: str) -> None:
    with pytest.raises(InvalidRequest, match="is not one of a client") as raised:
        records(context(code, {SEND_FIELD_NAMES[code].sys_flag: flag}))
    assert len(str(raised.value)) < 200


@pytest.mark.anyio
async def test_requests_that_send_nothing_have_other_flags() -> None:
    records(context(RequestCode.PULL_MESSAGE, {"sysFlag": "16"}))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("code", "flag"), [(RequestCode.SEND_BATCH_MESSAGE, {}), (310, {"m": "TRUE"}), (10, {"batch": "true"})]
)
async def test_entries_of_a_batch_cannot_hide_in_properties(code: int, flag: dict[str, str]) -> None:
    """A broker reads a length of properties as a signed number, and goes on after a negative one at once."""
    hidden = struct.pack(">iiiii", 0, 0, 0, 0, 1) + b"b" + b"\0\0"
    body = struct.pack(">iiiii", 0, 0, 0, 0, 1) + b"a" + struct.pack(">h", -2) + hidden + bytes(65534 - len(hidden))
    with pytest.raises(BodyError, match="properties of -2 bytes"):
        records(context(code, flag, body))
    with pytest.raises(BodyError, match="below 0"):
        messages.decode_batch(body)
    # The same body is that of a message without the flag.
    if code != RequestCode.SEND_BATCH_MESSAGE:
        records(context(code, dict.fromkeys(flag, "false"), body))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("pairs", "accepted"),
    [
        ({"KEYS": "$"}, True),
        ({"__LITE_TOPIC": "a"}, True),
        ({"__LITE_TOPIC": "a$b"}, False),
        ({"INNER_MULTI_DISPATCH": "%LMQ%$orders$a,%LMQ%x,other"}, True),
        ({"INNER_MULTI_DISPATCH": "other,%LMQ%$orders$a$b"}, False),
        ({"INNER_MULTI_DISPATCH": "%LMQ%$orders"}, False),
        ({"INNER_MULTI_DISPATCH": "%LMQ%$$a"}, False),
    ],
)
async def test_messages_at_which_a_broker_would_stop_are_rejected(pairs: dict[str, str], accepted: bool) -> None:
    """It would give consumers no later message of any topic."""
    text = properties.encode(pairs)
    batch = messages.encode_batch([messages.BatchMessage(0, b"a", ""), messages.BatchMessage(0, b"b", text)])
    for code, fields, body in (
        (RequestCode.SEND_MESSAGE, {"properties": text}, b"body"),
        (RequestCode.SEND_MESSAGE_V2, {"i": text}, b"body"),
        (RequestCode.SEND_MESSAGE_V2, {"m": "true"}, batch),
        (RequestCode.SEND_BATCH_MESSAGE, {"m": "true"}, batch),
    ):
        command = complete(REQUESTS[code], **fields)
        command.body = body
        sent = Context(FakeChannel(), command, REQUESTS[code], 0.0)
        if accepted:
            lite_queues(sent)
        else:
            with pytest.raises(InvalidRequest):
                lite_queues(sent)


@pytest.mark.anyio
@pytest.mark.parametrize("code", SEND_FIELD_NAMES)
@pytest.mark.parametrize(
    ("pairs", "accepted"),
    [
        ({"TRAN_MSG": "true", "KEYS": "TRAN_PREPARED_QUEUE_OFFSET"}, True),
        # A copy of a message that was committed.
        ({"TRAN_PREPARED_QUEUE_OFFSET": "7"}, True),
        ({"TRAN_PREPARED_QUEUE_OFFSET": "7", "TRAN_MSG": "false"}, True),
        ({"TRAN_PREPARED_QUEUE_OFFSET": "7", "TRAN_MSG": "true"}, False),
        ({"TRAN_MSG": "True", "TRAN_PREPARED_QUEUE_OFFSET": "7"}, False),
    ],
)
async def test_a_half_message_does_not_name_the_place_of_another(
    code: int, pairs: dict[str, str], accepted: bool
) -> None:
    sent = context(code, {SEND_FIELD_NAMES[code].properties: properties.encode(pairs)})
    if accepted:
        half_messages(sent)
    else:
        with pytest.raises(InvalidRequest, match="TRAN_PREPARED_QUEUE_OFFSET"):
            half_messages(sent)
