"""Known attacks end the connection with the right code, and do not use memory."""

import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from grpc_gateway.http2 import frames
from grpc_gateway.http2.abuse import Abuse
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.limits import Limits
from tests.grpc_gateway.http2.http2_client import (
    END,
    END_HEADERS,
    HEAD,
    REQUEST,
    TRAILERS,
    Client,
    data,
    frame_bytes,
    settings,
)

CALM = ErrorCode.ENHANCE_YOUR_CALM

Attack = Callable[[Client], Iterator[bytes]]


def stream_ids() -> Iterator[int]:
    return iter(range(1, 2**31, 2))


def rapid_reset(client: Client) -> Iterator[bytes]:
    for number in stream_ids():
        yield client.headers(number, flags=END) + frames.rst_stream(number, 8)


def provoked_by_window_updates(client: Client) -> Iterator[bytes]:
    for number in stream_ids():
        yield client.headers(number) + frames.window_update(number, 0)


def provoked_by_overflow(client: Client) -> Iterator[bytes]:
    for number in stream_ids():
        yield client.headers(number) + frames.window_update(number, 2**31 - 1)


def provoked_by_late_data(client: Client) -> Iterator[bytes]:
    for number in stream_ids():
        yield client.headers(number, flags=END) + data(number, b"x")


def provoked_by_priority(client: Client) -> Iterator[bytes]:
    for number in stream_ids():
        yield client.headers(number) + frame_bytes(frames.PRIORITY, 0, number, bytes(4))


def malformed(client: Client) -> Iterator[bytes]:
    for number in stream_ids():
        yield client.headers(number, (":method", "POST"))


def refused(client: Client) -> Iterator[bytes]:
    for number in stream_ids():
        yield client.headers(number)


def continuations(client: Client) -> Iterator[bytes]:
    yield frame_bytes(frames.HEADERS, 0, 1, b"")
    while True:
        yield frame_bytes(frames.CONTINUATION, 0, 1, b"\x82" * 100)


def empty_continuations(client: Client) -> Iterator[bytes]:
    yield frame_bytes(frames.HEADERS, 0, 1, b"")
    while True:
        yield frame_bytes(frames.CONTINUATION, 0, 1)


def large_continuations(client: Client) -> Iterator[bytes]:
    yield frame_bytes(frames.HEADERS, 0, 1, b"")
    while True:
        yield frame_bytes(frames.CONTINUATION, 0, 1, bytes(16_000))


def header_bomb(client: Client) -> Iterator[bytes]:
    yield client.headers(1, *REQUEST, ("a", "x" * 3900))
    for number in range(3, 2**31, 2):
        yield frame_bytes(frames.HEADERS, END_HEADERS, number, b"\xbe" * 16_000)


def header_lists(client: Client) -> Iterator[bytes]:
    for number in stream_ids():
        # Literals of a one-letter name and an empty value count 33 bytes each.
        yield frame_bytes(frames.HEADERS, END_HEADERS, number, client.block() + b"\0\1a\0" * 600)


def settings_flood(_: Client) -> Iterator[bytes]:
    while True:
        yield settings(initial_window_size=1000)


def ping_flood(_: Client) -> Iterator[bytes]:
    while True:
        yield frames.ping(b"12345678")


def empty_data(client: Client) -> Iterator[bytes]:
    yield client.headers(1)
    while True:
        yield data(1, b"")


def padding_only(client: Client) -> Iterator[bytes]:
    yield client.headers(1)
    while True:
        yield frame_bytes(frames.DATA, frames.PADDED, 1, b"\7" + bytes(7))


def priorities(_: Client) -> Iterator[bytes]:
    while True:
        yield frame_bytes(frames.PRIORITY, 0, 1, b"\0\0\0\3\0")


def unknown_frames(_: Client) -> Iterator[bytes]:
    while True:
        yield frame_bytes(0x42, 0, 0, b"")


ATTACKS: dict[Attack, Abuse] = {
    rapid_reset: Abuse.RAPID_RESET,
    provoked_by_window_updates: Abuse.VIOLATIONS,
    provoked_by_overflow: Abuse.VIOLATIONS,
    provoked_by_late_data: Abuse.VIOLATIONS,
    provoked_by_priority: Abuse.VIOLATIONS,
    malformed: Abuse.VIOLATIONS,
    refused: Abuse.REFUSED_STREAMS,
    continuations: Abuse.CONTINUATION_FLOOD,
    empty_continuations: Abuse.CONTINUATION_FLOOD,
    large_continuations: Abuse.CONTINUATION_FLOOD,
    header_bomb: Abuse.HEADER_BOMB,
    header_lists: Abuse.VIOLATIONS,
    settings_flood: Abuse.SETTINGS_FLOOD,
    ping_flood: Abuse.PING_FLOOD,
    empty_data: Abuse.EMPTY_DATA,
    padding_only: Abuse.EMPTY_DATA,
    priorities: Abuse.PRIORITY_FLOOD,
    unknown_frames: Abuse.UNKNOWN_FRAMES,
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_ends_with_goaway(attack: Attack) -> None:
    client = Client(Limits(concurrent_streams=100)).connect()
    for count, sent in enumerate(attack(client)):
        client.send(sent)
        # A thousand acts per second.
        client.now += 0.001
        if client.connection.fault is not None:
            break
        assert count < 5000, "the attack is not stopped"
    assert client.goaway is not None
    assert client.goaway[1] is CALM
    assert client.connection.fault is not None
    assert client.connection.fault.reason == ATTACKS[attack]
    assert client.connection.streams == {}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_does_not_use_memory(attack: Attack) -> None:
    client = Client(Limits(concurrent_streams=100)).connect()
    acts = attack(client)
    tracemalloc.start()
    try:
        for _ in range(1000):
            client.connection.receive(next(acts), client.now)
            client.connection.sender.take()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 1_500_000


def test_a_header_list_over_the_limit_resets_its_stream() -> None:
    client = Client().connect()
    assert client.send(client.headers(1, *REQUEST, ("a", "x" * 17_000))) == []
    assert client.resets == [(1, CALM)]
    assert client.request(3)


def test_late_cancellations_are_not_abuse() -> None:
    client = Client().connect()
    for number in range(1, 4000, 2):
        client.send(client.headers(number))
    client.now += 0.15
    client.send(b"".join(frames.rst_stream(number, 8) for number in range(1, 4000, 2)))
    assert client.goaway is None


def test_deadlines_that_pass_while_the_server_is_busy_are_not_abuse() -> None:
    client = Client().connect()
    for number in range(1, 2000, 2):
        # Both frames waited in the socket's buffer, so the server sees no time between them.
        client.send(client.headers(number, flags=END) + frames.rst_stream(number, 8))
    assert client.goaway is None


def test_many_calls_with_pings_and_window_updates_are_not_abuse() -> None:
    client = Client().connect()
    for number in range(1, 40_000, 2):
        [stream] = client.request(number, b"\0\0\0\0\0")
        stream.send_response(HEAD, b"\0\0\0\0\0", b"", TRAILERS)
        # Clients may measure the bandwidth with a ping for each response.
        client.send(frames.ping(b"12345678") + frames.window_update(0, 5))
    assert client.goaway is None


@pytest.mark.parametrize(("interval", "refused"), [(60.0, False), (10.0, False), (5.0, True)])
def test_pings_of_idle_clients_are_refused_below_the_interval(interval: float, refused: bool) -> None:
    client = Client().connect()
    for _ in range(10):
        client.now += interval
        client.send(frames.ping(b"12345678"))
    assert (client.goaway is not None) is refused
    if client.goaway is not None:
        assert client.goaway[1:] == (CALM, b"too_many_pings")


def test_unacknowledged_settings_time_out() -> None:
    client = Client()
    client.send(frames.PREFACE + frames.settings({}))
    client.now = 19
    client.connection.check(client.now)
    assert client.connection.fault is None
    client.connection.check(21)
    client.collect()
    assert client.goaway is not None
    assert client.goaway[1] is ErrorCode.SETTINGS_TIMEOUT


def test_a_peer_that_does_not_read_times_out() -> None:
    client = Client().connect()
    client.send(settings(initial_window_size=0))
    [stream] = client.request(1)
    stream.send_response(HEAD, b"", b"x" * 1000, TRAILERS)
    client.now = 50
    client.send(frames.window_update(1, 1))
    client.connection.check(100)
    assert client.connection.fault is None
    client.connection.check(111)
    assert client.connection.take_changed() == [stream]
    client.collect()
    assert client.goaway is not None
    assert client.goaway[1] is CALM
    assert stream.closed


def test_responses_over_the_hard_buffer_end_the_connection() -> None:
    client = Client(Limits(hard_buffer=10_000)).connect()
    client.send(settings(initial_window_size=0))
    streams = [client.request(number)[0] for number in (1, 3)]
    for stream in streams:
        stream.send_response(HEAD, b"", b"x" * 6000, TRAILERS)
    client.collect()
    assert client.goaway is not None
    assert client.goaway[1] is CALM
    assert set(client.connection.take_changed()) == set(streams)


def test_each_window_update_of_one_byte_sends_one_frame() -> None:
    client = Client().connect()
    client.send(settings(initial_window_size=0))
    [stream] = client.request(1)
    stream.send_response(HEAD, b"", b"x" * 1000, TRAILERS)
    client.collect()
    before = len(client.received)
    client.send(frames.window_update(1, 1) * 100)
    assert len(client.received) - before == 100


def test_small_pieces_of_a_body_share_their_memory() -> None:
    client = Client().connect()
    [stream] = client.send(client.headers(1))
    client.send(data(1, b"x") * 1000)
    assert sum(map(sys.getsizeof, set(stream.inbox))) < 100


def test_many_window_sizes_in_one_settings_frame_are_applied_once() -> None:
    """2700 values of SETTINGS_INITIAL_WINDOW_SIZE, each of which would change the windows of 4096 streams."""
    client = Client().connect()
    streams = [client.send(client.headers(number))[0] for number in range(1, 8192, 2)]
    values = b"".join(b"\0\4" + (65_535 + number % 5).to_bytes(4) for number in range(2700))
    begin = time.process_time()
    client.send(frame_bytes(frames.SETTINGS, 0, 0, values))
    assert time.process_time() - begin < 0.5
    assert {stream.send_window for stream in streams} == {65_535 + 2699 % 5}
