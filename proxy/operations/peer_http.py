"""A small HTTP/1.1 client for requests to other replicas: one connection per request."""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import h11

from protocol_negotiation.peer import HostPort

# Bytes of a response, and of one read.
_MAX_RESPONSE = 64 * 2**20
_READ = 64 * 1024


class PeerUnavailable(Exception):
    """A peer did not answer, or not with HTTP."""


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """The admin API of a peer. name: host name in its certificate; tls: None without TLS."""

    address: HostPort
    name: str
    tls: ssl.SSLContext | None


@dataclass(frozen=True, slots=True)
class PeerResponse:
    """A response. headers: by names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """The type of the body; empty if it is not named."""
        return self.headers.get("content-type", "")


async def request(
    peer: PeerAddress, method: str, target: str, headers: Mapping[str, str], body: bytes, timeout: float
) -> PeerResponse:
    """Return the response of a peer within `timeout` seconds. Raises PeerUnavailable."""
    try:
        async with asyncio.timeout(timeout):
            return await _exchange(peer, method, target, headers, body)
    except TimeoutError:
        raise PeerUnavailable(f"no answer within {timeout:g} s") from None
    except (OSError, ssl.SSLError) as error:
        raise PeerUnavailable(error.strerror or str(error)) from None
    except h11.ProtocolError as error:
        raise PeerUnavailable(f"the answer is not HTTP: {error}") from None


async def _exchange(
    peer: PeerAddress, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> PeerResponse:
    reader, writer = await asyncio.open_connection(
        peer.address.host,
        peer.address.port,
        ssl=peer.tls,
        server_hostname=peer.name if peer.tls is not None else None,
    )
    try:
        connection = h11.Connection(h11.CLIENT)
        fields = [("host", str(peer.address)), ("connection", "close"), ("content-length", str(len(body)))]
        start = h11.Request(method=method, target=target, headers=[*fields, *headers.items()])
        for event in (start, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        return await _read(connection, reader)
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


async def _read(connection: h11.Connection, reader: asyncio.StreamReader) -> PeerResponse:
    status = 0
    headers: dict[str, str] = {}
    parts: list[bytes] = []
    size = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ))
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            size += len(event.data)
            if size > _MAX_RESPONSE:
                raise PeerUnavailable(f"the answer is larger than {_MAX_RESPONSE} bytes")
            parts.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            return PeerResponse(status, headers, b"".join(parts))
        elif isinstance(event, h11.ConnectionClosed):
            raise PeerUnavailable("the connection was closed")
