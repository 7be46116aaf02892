"""The clients' listeners of a replica, built from the settings."""

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from protocol_negotiation.advertised_address import in_container, reachability_warning, resolve
from protocol_negotiation.connection import OnOutcome, Rejectors
from protocol_negotiation.listener import Handlers, Listener, ListenerOptions
from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls import TlsMode
from protocol_negotiation.tls_files import ContextSource
from proxy.core.advertised_listeners import AdvertisedListener, ListenerRoutes
from proxy.settings.listen import ListenSettings
from proxy.settings.model import Settings
from proxy.settings.naming import naming

_log = logging.getLogger("gantry")

# The name of the embedded broker's listener in metrics, logs and traffic rules.
BROKER_LISTENER = "embedded"


class Listeners:
    """All listeners.

    handlers: make the protocols of negotiated connections. rejectors: make the protocols of connections over the limit
    of their address. tls: None without certificates.
    """

    def __init__(
        self,
        settings: Settings,
        handlers: Handlers,
        rejectors: Rejectors,
        tls: ContextSource[Any] | None,
        on_outcome: OnOutcome,
    ) -> None:
        self._settings = settings.listen
        # Look-ups of advertised names, which may take longer than the rest of the start.
        self._lookups: asyncio.Future[list[None]] | None = None
        self._listeners = [
            Listener(_options(item, settings, with_tls=tls is not None), handlers, tls, on_outcome, rejectors)
            for item in settings.listen
        ]

    @property
    def tls_failures(self) -> list[Counter[str]]:
        """The failed TLS handshakes of each listener, by reason."""
        return [listener.tls_failures for listener in self._listeners]

    @property
    def addresses(self) -> list[HostPort]:
        """The bound addresses of all listeners."""
        return [address for listener in self._listeners for address in listener.addresses]

    @property
    def closed(self) -> list[str]:
        """The names of the listeners that do not accept connections."""
        return [listener.options.name for listener in self._listeners if not listener.addresses]

    async def open(self) -> ListenerRoutes:
        """Start to accept connections and return the advertised listeners. Raises OSError that names the address."""
        try:
            for listener in self._listeners:
                await start_listener(listener)
        except BaseException:
            # Close those that are open: an event loop may wait for ever for an unclosed server.
            await self.abort()
            raise
        self._log_addresses()
        self._lookups = asyncio.gather(*(_look_up(key, name) for key, name in self._advertised_names()))
        return ListenerRoutes(
            [
                AdvertisedListener(listener.addresses[0].port, item.advertised, item.broker, listener.options.name)
                for item, listener in zip(self._settings, self._listeners, strict=True)
            ]
        )

    def refuse(self, reason: str | None) -> None:
        """Close new connections at once, with this reason in the log; None: accept them again."""
        for listener in self._listeners:
            listener.refuse(reason)

    async def close(self) -> None:
        """Stop accepting connections."""
        self._end_lookups()
        for listener in self._listeners:
            await listener.close()

    async def abort(self) -> None:
        """Stop accepting connections and abort those that are still negotiating."""
        self._end_lookups()
        for listener in self._listeners:
            await listener.abort()

    def _end_lookups(self) -> None:
        if self._lookups is not None:
            self._lookups.cancel()
            self._lookups = None

    def _advertised_names(self) -> Iterator[tuple[str, str]]:
        """Yield the setting and the host of each advertised address that is a name."""
        for item in self._settings:
            rules = (("listen.advertise_rules", rule.address) for rule in item.advertise_rules)
            for key, text in (("listen.advertise", item.advertise), *rules):
                address = None if text is None else resolve(text, 0)
                if address is not None and address.ip is None and not address.is_unix:
                    yield key, address.host

    def _log_addresses(self) -> None:
        contained = in_container(os.environ)
        own_addresses = _own_addresses()
        for listener in self._listeners:
            options = listener.options
            warning = reachability_warning(
                options.advertise, options.address, contained=contained, own_addresses=own_addresses
            )
            if warning is not None:
                _log.warning("%s", warning)
            _log.info("listening on %s", ", ".join(map(str, listener.addresses)))


def broker_listener(
    address: str,
    settings: Settings,
    handlers: Handlers,
    rejectors: Rejectors,
    tls: ContextSource[Any] | None,
    on_outcome: OnOutcome,
) -> Listener:
    """Return the listener of the embedded broker. It has the limits and the TLS of a clients' listener."""
    item = ListenSettings(address=address, name=BROKER_LISTENER)
    # Only one process has the broker.
    options = replace(_options(item, settings, with_tls=tls is not None), reuse_port=False)
    return Listener(options, handlers, tls, on_outcome, rejectors)


@asynccontextmanager
async def broker_listening(listener: Listener, close_channels: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Listen for connections to the embedded broker inside the context, and close them at its end."""
    with naming(f"embedded.listen: {listener.options.address}"):
        await listener.start()
    _log.info("the embedded broker listens on %s", ", ".join(map(str, listener.addresses)))
    try:
        yield
    finally:
        await listener.abort()
        await close_channels()


def _options(item: ListenSettings, settings: Settings, *, with_tls: bool) -> ListenerOptions:
    return ListenerOptions(
        name=item.name or item.address,
        address=HostPort.parse(item.address),
        advertise=item.advertised,
        broker=item.broker,
        tls_mode=settings.tls.mode if item.tls and with_tls else TlsMode.DISABLED,
        trusted_proxies=tuple(item.trusted_proxies),
        negotiation_timeout=settings.limits.negotiation_timeout,
        max_connections=item.max_connections,
        max_connections_per_address=item.max_connections_per_address,
        max_negotiations=settings.limits.negotiations,
        max_handshakes=settings.limits.handshakes,
        reuse_port=settings.workers > 1,
        leave_descriptors=True,
        dead_peer_timeout=settings.limits.dead_peer_timeout,
        socket_mode=int(item.socket_mode, 8),
    )


async def start_listener(listener: Listener) -> None:
    """Start a listener. Raises OSError that names the address."""
    try:
        await listener.start()
    except OSError as error:
        address = listener.options.address
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror or error}") from None


async def _look_up(key: str, name: str) -> None:
    """Log a warning if an advertised name does not resolve."""
    try:
        await asyncio.get_running_loop().getaddrinfo(name, None)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        _log.warning(
            "%s: %s does not resolve here (%s): set it to a name or address that clients can reach", key, name, reason
        )


def _own_addresses() -> list[str]:
    """Return the IP addresses that this host's name resolves to."""
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)})
    except OSError:
        return []
