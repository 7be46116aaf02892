from protocol_negotiation.http1_rejection import misdirected
from tests.protocol_negotiation.kit import HTTP1_REQUEST


def test_the_answer_is_complete() -> None:
    head, _, body = misdirected(HTTP1_REQUEST).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 421 Misdirected Request"
    assert b"Content-Length: %d" % len(body) in lines
    assert b"Connection: close" in lines
    assert b"RocketMQ" in body


def test_head_gets_no_content() -> None:
    answer = misdirected(b"HEAD / HTTP/1.1\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n")
    assert misdirected(HTTP1_REQUEST).startswith(answer)
