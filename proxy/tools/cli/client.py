"""Requests of the commands to the server: retries at a busy server or another replica, and errors for users."""

import argparse
import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import ClassVar

from protocol_negotiation.peer import HostPort
from proxy.tools.cli.parser import DEFAULT_ENDPOINT
from proxy.tools.client_certificates import ClientTlsError, client_context
from proxy.tools.credentials import CredentialsError
from proxy.tools.credentials import read as read_credentials
from proxy.tools.remoting_client import RemotingClient, connect, refuse, route_fields, route_from_reply
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.errors import ConnectionLost, RequestTimeout
from remoting.names import SELF_TEST_TOPIC
from remoting.outcomes import Reply
from remoting.routes import TopicRoute
from remoting.signature import Credentials

# Every broker creates it at its start: its route names all brokers.
_EVERYWHERE = SELF_TEST_TOPIC
# Attempts of a request at a busy server, and the first pause in seconds.
_ATTEMPTS = 6
_PAUSE = 0.05
# Attempts to reach another replica after GO_AWAY, with pauses in seconds from the first to the longest.
_MOVES = 8
_FIRST_MOVE, _LONGEST_MOVE = 0.1, 2.0
# Seconds for the server's part of the close over TLS.
_CLOSE_TIMEOUT = 1.0
# Content type and major version of a TLS record with an alert (RFC 8446, section 5.1).
_TLS_ALERT = b"\x15\x03"
# The beginning of Gantry's remark to a sender whose credentials are missing or wrong.
_UNAUTHENTICATED = "authentication failed"
_BUSY = frozenset((ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL))


class CommandError(Exception):
    """An error that ends the command: one sentence for the user, and the exit status."""

    status: ClassVar[int] = 1


class UsageError(CommandError):
    """The command's arguments are invalid."""

    status = 2


class Refused(CommandError):
    """The server's response code is not SUCCESS. authenticated: whether the server knows the sender."""

    def __init__(self, reply: RemotingCommand) -> None:
        self.code = reply.code
        remark = reply.remark or f"the server answered code {reply.code}"
        self.authenticated = not remark.startswith(_UNAUTHENTICATED)
        super().__init__(remark if self.authenticated else f"{remark}; see --access-key and --secret-key-file")


class Client:
    """Requests to `endpoint`; `timeout` in seconds is for each response.

    After GO_AWAY, requests go over a new connection, which a load balancer leads to another replica.

    Attributes:
        lasting: reconnect without end, also after a lost connection, whose requests may have been performed.
        on_connect: called after each reconnection, before requests are sent again.
        answers: functions that answer requests of the server, by code; None: no answer.
        encrypted: whether the connection uses TLS.
    """

    def __init__(
        self, endpoint: str, timeout: float, connector: Callable[["Client"], Awaitable[RemotingClient]]
    ) -> None:
        self.endpoint = endpoint
        self.lasting = False
        self.encrypted = False
        self.on_connect: Callable[[], Awaitable[None]] | None = None
        self.answers: dict[int, Callable[[RemotingCommand], RemotingCommand | None]] = {}
        self._timeout = timeout
        self._connector = connector
        self._remoting: RemotingClient
        self._reconnecting = asyncio.Lock()

    async def connect(self) -> None:
        """Open the first connection. Raises CommandError."""
        self._remoting = await self._connector(self)

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
            reply = await self._answered(code, texts, body, self._timeout + wait)
            if reply.code == ResponseCode.SUCCESS or reply.code in accept:
                return reply
            if reply.code not in _BUSY or attempt + 1 == attempts:
                raise Refused(reply)
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("the last attempt returns or raises")

    async def _answered(self, code: RequestCode, texts: dict[str, str], body: bytes, timeout: float) -> RemotingCommand:
        """Return the response of a replica that does not go away."""
        moves, pause = 0, _FIRST_MOVE
        while True:
            remoting = self._remoting
            try:
                reply = await remoting.request(code, texts, body, timeout=timeout)
            except RequestTimeout:
                raise CommandError(f"{self.endpoint} did not answer {code.name} within {self._timeout:g} s") from None
            except ConnectionLost:
                if not self.lasting:
                    raise CommandError(self._loss(remoting)) from None
            else:
                if reply.code != ResponseCode.GO_AWAY:
                    return reply
                if moves == _MOVES and not self.lasting:
                    raise Refused(reply)
            if moves:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_MOVE)
            moves += 1
            await self._reconnect(remoting)

    async def _reconnect(self, former: RemotingClient) -> None:
        """Replace a connection, once for all its requests. Raises CommandError unless the client is lasting."""
        async with self._reconnecting:
            if self._remoting is not former:
                return
            with suppress(*((CommandError,) if self.lasting else ())):
                self._remoting = await self._connector(self)
                if self.on_connect is not None:
                    await self.on_connect()

    async def ask_once(self, code: RequestCode, fields: Mapping[str, str], body: bytes = b"") -> RemotingCommand:
        """Send a request over the present connection; return any response. Raises RequestTimeout, ConnectionLost."""
        return await self._remoting.request(code, fields, body)

    def serve(self, _: RemotingConnection, command: RemotingCommand) -> Reply | None:
        """Answer a request of the server. Raises UnsupportedRequest."""
        reply = self.answers.get(command.code, refuse)(command)
        if reply is None:
            return None
        future: Reply = asyncio.get_running_loop().create_future()
        future.set_result(reply)
        return future

    def _loss(self, remoting: RemotingClient) -> str:
        """Describe the loss of a connection by the bytes that the server sent."""
        first = remoting.first_bytes
        if self.encrypted and not first:
            # In TLS 1.3 a server judges the client's certificate after the client's part of the handshake.
            return f"{self.endpoint} closed the connection; does it want another client certificate (--client-cert)?"
        if first.startswith(b"HTTP/"):
            return f"{self.endpoint} speaks HTTP, not RocketMQ's protocol; is it the address of the admin API?"
        if first.startswith(_TLS_ALERT) or not first:
            return f"{self.endpoint} closed the connection; does it want TLS (--tls)?"
        if remoting.closed_by_protocol_error:
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
        """Return the names of all brokers, sorted, with the cluster of each. Raises CommandError."""
        try:
            data = (await self.route(_EVERYWHERE)).data["brokerDatas"]
        except Refused as error:
            if error.code != ResponseCode.NO_PERMISSION or not error.authenticated:
                raise
            raise CommandError(
                f"{error}; the names of all brokers are in the route of {_EVERYWHERE}, for which a user needs Get on"
                f" Topic:{_EVERYWHERE}"
            ) from None
        return dict(sorted((str(item["brokerName"]), str(item.get("cluster") or "")) for item in data))


def _text(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Lone surrogates come from shell arguments in another encoding.
        raise UsageError(f"not UTF-8: {text[:80]!r}") from None
    return text


def read_target(options: argparse.Namespace) -> tuple[HostPort, Credentials | None]:
    """Return the endpoint and the credentials of a command's common options. Raises UsageError."""
    try:
        credentials = read_credentials(options, os.environ.get("GANTRY_ENDPOINT", DEFAULT_ENDPOINT))
    except CredentialsError as error:
        raise UsageError(str(error)) from None
    return parse_endpoint(options.endpoint), credentials


def parse_endpoint(text: str) -> HostPort:
    """Parse the address of an access point. Raises UsageError."""
    with suppress(ValueError):
        endpoint = HostPort.parse(text)
        if endpoint.host:
            return endpoint
    raise UsageError(f"not an endpoint: {text!r}; write HOST:PORT")


@asynccontextmanager
async def connected(options: argparse.Namespace) -> AsyncIterator[Client]:
    """Connect by the command's common options. Raises CommandError."""
    endpoint, credentials = read_target(options)
    context = _tls(options)
    async with AsyncExitStack() as stack:

        async def connector(client: Client) -> RemotingClient:
            connecting = connect(
                endpoint,
                options.timeout,
                tls=context,
                close_timeout=_CLOSE_TIMEOUT,
                credentials=credentials,
                handler=client.serve,
            )
            with _connect_errors(options):
                # Former connections stay open until the end: their requests in flight are still answered.
                return await stack.enter_async_context(connecting)

        client = Client(options.endpoint, options.timeout, connector)
        client.encrypted = context is not None
        await client.connect()
        yield client


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
    return bool(options.tls or options.ca or options.insecure or options.client_cert or options.client_key)


def _tls(options: argparse.Namespace) -> ssl.SSLContext | None:
    if not _wants_tls(options):
        return None
    try:
        return client_context(options)
    except ClientTlsError as error:
        raise UsageError(str(error)) from None


def _reason(error: OSError) -> str:
    known = error.errno is not None and not isinstance(error, ssl.SSLError | socket.gaierror)
    return os.strerror(error.errno or 0) if known else error.strerror or str(error) or "it closed the connection"
