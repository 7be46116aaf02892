from protocol_negotiation.rejection import misdirected_response
from tests.protocol_negotiation.samples import (
    HTTP1_REQUEST,
)


def test_a_misdirected_response_is_complete() -> None:
    head, _, body = misdirected_response(HTTP1_REQUEST).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 421 Misdirected Request"
    assert b"Content-Length: %d" % len(body) in lines
    assert b"Connection: close" in lines
    assert b"RocketMQ" in body


def test_a_misdirected_response_to_head_has_no_content() -> None:
    response = misdirected_response(b"HEAD / HTTP/1.1\r\n\r\n")
    assert response.endswith(b"\r\n\r\n")
    assert misdirected_response(HTTP1_REQUEST).startswith(response)
