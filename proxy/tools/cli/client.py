"""Requests of the commands to the server: retries at a busy server, and error messages for users."""

import argparse
import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import ClassVar

from protocol_negotiation.peer import HostPort
from proxy.tools.cli.parser import DEFAULT_ENDPOINT
from proxy.tools.credentials import CredentialsError
from proxy.tools.credentials import read as read_credentials
from proxy.tools.remoting_client import RemotingClient, connect, route_fields, route_from_reply
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, RequestTimeout
from remoting.routes import TopicRoute

# A topic that every broker creates at its start: its route names all brokers.
_EVERYWHERE = "SELF_TEST_TOPIC"
# Attempts of a request at a busy server, and the first pause in seconds.
_ATTEMPTS = 6
_PAUSE = 0.05
# Seconds for the server's part of the close over TLS.
_CLOSE_TIMEOUT = 1.0
# Content type and major version of a TLS record with an alert (RFC 8446, section 5.1).
_TLS_ALERT = b"\x15\x03"
_BUSY = frozenset((ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL))


class CommandError(Exception):
    """An error that ends the command: one sentence for the user, and the exit status."""

    status: ClassVar[int] = 1


class UsageError(CommandError):
    """The command's arguments are invalid."""

    status = 2


class Refused(CommandError):
    """The server's response code is not SUCCESS."""

    def __init__(self, reply: RemotingCommand) -> None:
        self.code = reply.code
        super().__init__(reply.remark or f"the server answered code {reply.code}")


class Client:
    """Requests to `endpoint`; `timeout` in seconds is for each response."""

    def __init__(self, endpoint: str, remoting: RemotingClient, timeout: float) -> None:
        self.endpoint = endpoint
        self._remoting = remoting
        self._timeout = timeout

    async def ask(
        self,
        code: RequestCode,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        accept: frozenset[int] = frozenset(),
        wait: float = 0.0,
        attempts: int = _ATTEMPTS,
    ) -> RemotingCommand:
        """Send a request; return the response, which is SUCCESS or one of the codes `accept`. Raises Refused,
        CommandError.

        wait: seconds for which the server may hold the request. attempts: number of tries at a busy server, which may
        have performed a request that it did not answer in time.
        """
        texts = {name: _text(value) for name, value in (fields or {}).items() if value is not None}
        pause = _PAUSE
        for attempt in range(attempts):
            try:
                reply = await self._remoting.request(code, texts, body, timeout=self._timeout + wait)
            except RequestTimeout:
                raise CommandError(f"{self.endpoint} did not answer {code.name} within {self._timeout:g} s") from None
            except ConnectionLost:
                raise CommandError(self._loss()) from None
            if reply.code == ResponseCode.SUCCESS or reply.code in accept:
                return reply
            if reply.code not in _BUSY or attempt + 1 == attempts:
                raise Refused(reply)
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("the last attempt returns or raises")

    def _loss(self) -> str:
        """Describe the loss of the connection by the bytes that the server sent."""
        first = self._remoting.first_bytes
        if first.startswith(b"HTTP/"):
            return f"{self.endpoint} speaks HTTP, not RocketMQ's protocol; is it the address of the admin API?"
        if first.startswith(_TLS_ALERT) or not first:
            return f"{self.endpoint} closed the connection; does it want TLS (--tls)?"
        if self._remoting.closed_by_protocol_error:
            return f"{self.endpoint} does not speak RocketMQ's protocol"
        return f"{self.endpoint} closed the connection"

    async def route(self, topic: str) -> TopicRoute:
        """Return the topic's route. Raises CommandError if the topic does not exist."""
        missing = frozenset((int(ResponseCode.TOPIC_NOT_EXIST),))
        reply = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, route_fields(topic), accept=missing)
        route = route_from_reply(topic, reply)
        if route is None:
            raise CommandError(
                f"there is no topic {topic}; `gantry topics` lists them, `gantry topics create` makes one"
            )
        return route

    async def brokers(self) -> dict[str, str]:
        """Return the names of all brokers, sorted, with the cluster of each."""
        data = (await self.route(_EVERYWHERE)).data["brokerDatas"]
        return dict(sorted((str(item["brokerName"]), str(item.get("cluster") or "")) for item in data))


def _text(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Lone surrogates come from shell arguments in another encoding.
        raise UsageError(f"not UTF-8: {text[:80]!r}") from None
    return text


@asynccontextmanager
async def connected(options: argparse.Namespace) -> AsyncIterator[Client]:
    """Connect by the command's common options. Raises CommandError."""
    try:
        credentials = read_credentials(options, os.environ.get("GANTRY_ENDPOINT", DEFAULT_ENDPOINT))
    except CredentialsError as error:
        raise UsageError(str(error)) from None
    try:
        endpoint = HostPort.parse(options.endpoint)
    except ValueError:
        raise UsageError(f"not an endpoint: {options.endpoint!r}; write HOST:PORT") from None
    context = _tls(options)
    async with AsyncExitStack() as stack:
        connecting = connect(
            endpoint, options.timeout, tls=context, close_timeout=_CLOSE_TIMEOUT, credentials=credentials
        )
        with _connect_errors(options):
            remoting = await stack.enter_async_context(connecting)
        yield Client(options.endpoint, remoting, options.timeout)


@contextmanager
def _connect_errors(options: argparse.Namespace) -> Iterator[None]:
    """Convert errors of a connection attempt. Raises CommandError."""
    try:
        yield
    except TimeoutError:
        raise CommandError(f"{options.endpoint} did not accept the connection within {options.timeout:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise CommandError(
            f"the certificate of {options.endpoint} is not trusted ({error.verify_message}); see --ca and --insecure"
        ) from None
    except (ConnectionError, ssl.SSLError) as error:
        hint = (
            "; if it serves no TLS, leave out --tls"
            if _wants_tls(options) and not isinstance(error, ConnectionRefusedError)
            else ""
        )
        raise CommandError(f"cannot connect to {options.endpoint}: {_reason(error)}{hint}") from None
    except OSError as error:
        raise CommandError(f"cannot connect to {options.endpoint}: {_reason(error)}") from None


def _wants_tls(options: argparse.Namespace) -> bool:
    return bool(options.tls or options.ca or options.insecure)


def _tls(options: argparse.Namespace) -> ssl.SSLContext | None:
    if not _wants_tls(options):
        return None
    try:
        context = ssl.create_default_context(cafile=options.ca)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{options.ca} holds no certificates that can be read: {_reason(error)}") from None
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _reason(error: OSError) -> str:
    known = error.errno is not None and not isinstance(error, ssl.SSLError | socket.gaierror)
    return os.strerror(error.errno or 0) if known else error.strerror or str(error) or "it closed the connection"
