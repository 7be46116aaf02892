"""The remoting client of the command line and the doctor, against servers that misbehave."""

import asyncio
import logging

import pytest

from proxy.tools.remoting_client import Speaker, connect, route_fields
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, RequestTimeout
from remoting.frame import FrameDecoder
from tests.proxy.tools.doctor.servers import server

pytestmark = pytest.mark.anyio

_ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


async def _receive(reader: asyncio.StreamReader) -> RemotingCommand:
    """Return the first command of a connection."""
    decoder = FrameDecoder()
    while True:
        for frame in decoder.feed(await reader.read(1 << 16)):
            return commands.decode(frame)


async def test_request_returns_the_response_and_states_the_speaker() -> None:
    received: list[RemotingCommand] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        command = await _receive(reader)
        received.append(command)
        writer.write(commands.answer(commands.response(17), command.opaque, 0).encode())
        await reader.read(1)

    async with server(respond) as address, connect(address, 10.0) as client:
        reply = await client.request(_ROUTE, route_fields("orders"), speaker=Speaker("CPP", 300))
    assert reply.code == 17
    [command] = received
    assert (command.language, command.version, command.fields["topic"]) == ("CPP", 300, "orders")


@pytest.mark.parametrize(
    "data", [b"-ERR\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x0c\x07\0\0\0 not remoting"]
)
async def test_bytes_of_another_protocol_end_the_connection_at_once(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _receive(reader)
        writer.write(data)
        await reader.read(1)

    async with server(respond) as address, connect(address, 30.0) as client:
        with caplog.at_level(logging.WARNING), pytest.raises(ConnectionLost):
            await client.request(_ROUTE, route_fields("orders"))
        assert client.closed_by_protocol_error
        assert client.first_bytes == data
    assert not caplog.records


async def test_incomplete_frame_times_out() -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _receive(reader)
        writer.write(b"\0\0\0\x64")
        await reader.read(1)

    async with server(respond) as address, connect(address, 10.0) as client:
        with pytest.raises(RequestTimeout):
            await client.request(_ROUTE, route_fields("orders"), timeout=0.2)
        assert not client.closed_by_protocol_error
        assert client.first_bytes == b"\0\0\0\x64"


async def test_prefix_precedes_the_first_frame() -> None:
    received: list[bytes] = []

    async def record(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        received.append(await reader.readexactly(10))

    async with server(record) as address, connect(address, 10.0, prefix=b"PREFIX") as client:
        with pytest.raises(ConnectionLost):
            await client.request(_ROUTE, route_fields("orders"))
    assert received[0].startswith(b"PREFIX\0\0")
