"""Other replicas: found by address or DNS name, asked for their snapshots of operations."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

from protocol_negotiation.peer import HostPort
from proxy.operations.operation import Operation
from proxy.operations.peer_http import PeerAddress, PeerResponse, PeerUnavailable, request
from proxy.settings.admin import AdminSettings

_log = logging.getLogger("gantry.admin")

# Seconds between resolutions of names, and after a failure until the peer is asked again.
_RESOLVE_INTERVAL = 10.0
_RETRY_DELAY = 5.0
# Seconds in addition to an operation's own timeout, and until a peer must have introduced itself.
_MARGIN = 1.0
_HELLO_TIMEOUT = 2.0
_HTTPS = "https://"
# Headers of a request that another replica sends on: the caller's name, and its role there, in lower case.
CALLER_HEADER, ROLE_HEADER = "x-gantry-caller", "x-gantry-role"
# Header of a snapshot: the numbers of the workers that it lacks, as in `1,2`.
MISSING_HEADER = "x-gantry-missing-workers"
PATH = "/v1/peer"


@dataclass(slots=True)
class Peer:
    """Another replica. name, instance: empty until it has answered; error: why it did not answer the last time."""

    where: PeerAddress
    name: str = ""
    instance: str = ""
    error: str | None = None
    failed_at: float = float("-inf")

    @property
    def label(self) -> str:
        """Its name, or its address as long as it has not answered."""
        return self.name or str(self.where.address)


@dataclass(frozen=True, slots=True)
class PeerSnapshot:
    """The snapshot of one peer. missing: its workers that did not reply."""

    replica: str
    snapshot: Any
    missing: tuple[int, ...] = ()


class Peers:
    """The other replicas. name: of this one; it finds itself among the addresses by `instance`."""

    def __init__(self, settings: AdminSettings, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name or socket.gethostname()
        # The same at all workers of a replica.
        self.instance = f"{socket.gethostname()} {settings.configured} {name}"
        self._settings = settings
        self._clock = clock
        self._resolved_at = float("-inf")
        self._peers: dict[tuple[str, int], Peer] = {}
        self._lock = asyncio.Lock()

    @property
    def configured(self) -> bool:
        """Whether there are other replicas."""
        return bool(self._settings.peers)

    async def others(self) -> list[Peer]:
        """Return the peers, without this replica."""
        async with self._lock:
            if self._clock() - self._resolved_at > _RESOLVE_INTERVAL:
                await self._resolve()
                self._resolved_at = self._clock()
            await asyncio.gather(*(self._greet(peer) for peer in self._peers.values() if not peer.instance))
        found: dict[str, Peer] = {}
        for peer in self._peers.values():
            # A replica may have several addresses.
            if peer.instance != self.instance:
                found.setdefault(peer.instance or str(peer.where.address), peer)
        return sorted(found.values(), key=lambda peer: peer.label)

    async def named(self, name: str) -> Peer | None:
        """Return the peer with this name, if there is one."""
        return next((peer for peer in await self.others() if peer.label == name), None)

    async def gather(
        self, operation: Operation[Any, Any, Any], parameters: Any
    ) -> tuple[list[PeerSnapshot], list[str]]:
        """Return the snapshots of all peers, and the names of peers, and of their workers, that do not answer."""
        others = await self.others()
        target = f"{PATH}/{operation.name}?parameters={quote(operation.parameters.dump_json(parameters))}"
        replies = await asyncio.gather(*(self._ask(peer, target, operation) for peer in others))
        pairs = list(zip(others, replies, strict=True))
        snapshots = [reply for peer, reply in pairs if reply is not None and peer.error is None]
        missing = [peer.label for peer, _ in pairs if peer.error is not None]
        missing += [f"{reply.replica} (worker {worker})" for reply in snapshots for worker in reply.missing]
        return snapshots, sorted(missing)

    async def send(
        self, peer: Peer, method: str, target: str, body: bytes, timeout: float, headers: Mapping[str, str]
    ) -> PeerResponse:
        """Return a peer's response to any request. Raises PeerUnavailable."""
        credential = {"authorization": f"Bearer {self._settings.peer_token}"}
        try:
            response = await request(peer.where, method, target, {**headers, **credential}, body, timeout)
            # This replica's fault. 403 may be the caller's, whose role the headers name.
            if response.status in (401, 421):
                raise PeerUnavailable(f"it refuses the request with {response.status}")
        except PeerUnavailable as error:
            self._failed(peer, str(error))
            raise
        if peer.error is not None:
            _log.info("replica %s answers again", peer.label)
        peer.error = None
        return response

    async def _ask(self, peer: Peer, target: str, operation: Operation[Any, Any, Any]) -> PeerSnapshot | None:
        """Return a peer's snapshot; None if it has none, or does not answer."""
        if not peer.instance or self._is_resting(peer):
            return None
        try:
            response = await self.send(peer, "GET", target, b"", operation.timeout + _MARGIN, {})
        except PeerUnavailable:
            return None
        if response.status == 404:
            return None
        try:
            if response.status != 200:
                raise ValueError(f"it answered {response.status}")
            missing = tuple(int(number) for number in response.headers.get(MISSING_HEADER, "").split(",") if number)
            return PeerSnapshot(peer.label, operation.snapshot.validate_json(response.body), missing)
        except ValueError as error:
            self._failed(peer, f"its snapshot is not usable: {str(error).splitlines()[0]}")
            return None

    async def _greet(self, peer: Peer) -> None:
        """Learn a peer's name."""
        if self._is_resting(peer):
            return
        try:
            response = await self.send(peer, "GET", PATH, b"", _HELLO_TIMEOUT, {})
            answer = orjson.loads(response.body)
            peer.name, peer.instance = str(answer["replica"]), str(answer["instance"])
        except PeerUnavailable:
            return
        except (ValueError, KeyError, TypeError):
            self._failed(peer, f"it answered {response.status}: no replica of this version")
            return
        if any(other is not peer and other.name == peer.name for other in self._peers.values()) or (
            peer.name == self.name and peer.instance != self.instance
        ):
            peer.name = f"{peer.name} ({peer.where.address})"

    def _is_resting(self, peer: Peer) -> bool:
        return peer.error is not None and self._clock() - peer.failed_at < _RETRY_DELAY

    def _failed(self, peer: Peer, error: str) -> None:
        if peer.error is None:
            _log.warning("replica %s does not answer: %s", peer.label, error)
        peer.error, peer.failed_at = error, self._clock()
        # It may be another replica at this address the next time.
        peer.instance = ""

    async def _resolve(self) -> None:
        """Look up the addresses of all names; a name that is not known keeps its former addresses."""
        found: dict[tuple[str, int], Peer] = {}
        context = self._tls()
        for text in self._settings.peers:
            host, port = _parse(text)
            try:
                infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                _log.warning("no addresses of the replicas %s: %s", text, error.strerror)
                found.update({key: peer for key, peer in self._peers.items() if peer.where.name == host})
                found.setdefault(
                    (host, port), Peer(PeerAddress(HostPort(host, port), host, None), error="unknown name")
                )
                continue
            for *_, address in infos:
                key = (str(address[0]), port)
                where = PeerAddress(HostPort(key[0], port), host, context if text.startswith(_HTTPS) else None)
                found[key] = self._peers.get(key) or Peer(where)
        self._peers = found

    def _tls(self) -> ssl.SSLContext | None:
        if not any(text.startswith(_HTTPS) for text in self._settings.peers):
            return None
        return ssl.create_default_context(cafile=self._settings.peer_ca)


def _parse(text: str) -> tuple[str, int]:
    address = HostPort.parse(text.removeprefix(_HTTPS).removeprefix("http://"))
    return address.host, address.port
