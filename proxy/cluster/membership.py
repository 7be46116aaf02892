"""Membership: makes our clients members of their groups at the brokers, as if they were connected there.

Because every broker knows them, the brokers' own machinery works for clients behind any number of
replicas: retry topics, consumer lists, rebalance notices, transaction checks, the official tools.
A replica that dies takes its connections along, and the brokers notice at once.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from proxy.backend import Push
from proxy.channel import Channel
from proxy.clients import INNER_PRODUCER, Groups, Role
from proxy.cluster.lanes import Lane, Lanes
from proxy.cluster.link import Link, Reply
from proxy.tasks import spawn
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import ConsumerNotOnline, RemotingError, UnsupportedRequest

_log = logging.getLogger("gantry.membership")

# A broker that does not answer must not hold a client's heartbeat up for longer, in seconds.
_TIMEOUT = 3.0
# After a broker was lost: how long until its members are enrolled again, in seconds.
_AGAIN = 1.0
# How often that is tried. After that it is for the name servers to say when it is back.
_TRIES = 120


class Enrolment:
    """What brokers have been told of one client: its last heartbeat, and at which broker names.

    turn: brokers handle heartbeats and farewells on different threads, so one must be answered
    before the next is sent.
    """

    __slots__ = ("brokers", "heartbeat", "turn")

    def __init__(self) -> None:
        self.brokers: set[str] = set()
        self.heartbeat: RemotingCommand | None = None
        self.turn = asyncio.Lock()


class Membership:
    """Our clients' membership at the brokers."""

    def __init__(
        self,
        link: Callable[[str, Handler, Callable[[Link], None]], Link],
        addresses: Callable[[str], Iterable[str]],
        push: Push,
    ) -> None:
        self._make_link = link
        self._addresses = addresses
        self._push = push
        self._lanes = Lanes()
        self._links: dict[tuple[str, int], Link] = {}
        self._enrolments: dict[Channel, Enrolment] = {}

    async def enroll(
        self, channel: Channel, groups: Groups, heartbeat: RemotingCommand, brokers: Collection[str]
    ) -> None:
        """Send the client's heartbeat to these brokers, masters and slaves; done when all have answered or failed."""
        enrolment = self._enrolments.setdefault(channel, Enrolment())
        async with enrolment.turn:
            if channel.closed:
                # It went while its heartbeat waited for a route, and has been seen off already.
                if self._lanes.lane(channel) is None:
                    self._enrolments.pop(channel, None)
                return
            # A withdrawal that had the turn before has taken it for ended.
            self._enrolments[channel] = enrolment
            lane, left = self._lanes.seat(channel, groups)
            enrolment.heartbeat = heartbeat
            enrolment.brokers.update(brokers)
            if left is not None:
                await self._withdraw(left, channel, _groups(left, channel))
            targets = self._targets(brokers)
            await asyncio.gather(*(self._tell(name, address, lane, heartbeat) for name, address in targets))

    async def withdraw(self, channel: Channel, groups: Groups) -> None:
        """Tell every broker which knows the client that it has left these groups; done when all have answered."""
        enrolment = self._enrolments.get(channel)
        if enrolment is None:
            return
        async with enrolment.turn:
            lane = self._lanes.lane(channel)
            if lane is not None:
                await self._withdraw(lane, channel, groups)
            if self._lanes.lane(channel) is None:
                self._enrolments.pop(channel, None)

    def enrolled(self, channel: Channel) -> set[str]:
        """The names of the brokers that have been told of this client."""
        enrolment = self._enrolments.get(channel)
        return set() if enrolment is None else enrolment.brokers

    def close(self) -> None:
        """Close all lanes."""
        for link in self._links.values():
            link.close()

    @property
    def connections(self) -> int:
        """How many connections to brokers carry memberships."""
        return len(self._links)

    def _targets(self, brokers: Iterable[str]) -> list[tuple[str, str]]:
        return [(name, address) for name in sorted(brokers) for address in self._addresses(name)]

    async def _tell(self, broker: str, address: str, lane: Lane, command: RemotingCommand) -> bool:
        """Send one membership request over a lane; a broker that cannot be reached learns it later (`_again`)."""
        future: Reply = asyncio.get_running_loop().create_future()
        self._link(broker, address, lane).request(command.copy(), _TIMEOUT, future)
        try:
            reply = await future
        except RemotingError as error:
            _log.info("%s has not been told %s: %s", address, RequestCode(command.code).name, error)
            return False
        if reply.code != 0:
            _log.warning("%s refused %s: %s", address, RequestCode(command.code).name, reply.remark)
        return reply.code == 0

    async def _withdraw(self, lane: Lane, channel: Channel, groups: Groups) -> None:
        enrolment = self._enrolments.get(channel)
        heartbeat = enrolment.heartbeat if enrolment is not None else None
        targets = self._targets(enrolment.brokers) if enrolment is not None else []
        # Only where there is a connection: a broker that has lost it has dropped its members by itself.
        targets = [(name, address) for name, address in targets if self._is_connected(address, lane)]
        client_id = channel.session.client_id or ""
        await asyncio.gather(
            *(
                self._tell(name, address, lane, request)
                for request in _farewells(client_id, groups, heartbeat)
                for name, address in targets
            )
        )
        # Not before the brokers have answered: they handle heartbeats and farewells on different
        # threads, and a successor on this seat might be removed in its place.
        if self._lanes.free(lane, channel, groups):
            for key in [key for key in self._links if key[1] == lane.number]:
                self._links.pop(key).close()

    def _is_connected(self, address: str, lane: Lane) -> bool:
        link = self._links.get((address, lane.number))
        return link is not None and link.connection is not None

    def _link(self, broker: str, address: str, lane: Lane) -> Link:
        key = (address, lane.number)
        link = self._links.get(key)
        if link is None:
            link = self._make_link(address, partial(self._pushed, lane, broker), partial(self._lost, broker, lane))
            self._links[key] = link
        return link

    # A broker was lost: its members are enrolled again, their own heartbeats come only every 30 s.

    def _lost(self, broker: str, lane: Lane, link: Link) -> None:
        if lane.held:
            spawn(self._again(broker, lane, link.address))

    async def _again(self, broker: str, lane: Lane, address: str) -> None:
        # Not only while a name server lists it: a broker that was restarted is mostly back where it was.
        for _ in range(_TRIES):
            await asyncio.sleep(_AGAIN)
            heartbeats = self._heartbeats(broker, lane)
            if all(await asyncio.gather(*(self._tell(broker, address, lane, beat) for beat in heartbeats))):
                return

    def appeared(self, broker: str, addresses: Iterable[str]) -> None:
        """A broker is there at these addresses, of which we did not know: it is told its members."""
        lanes = {lane.number: lane for channel in self._enrolments if (lane := self._lanes.lane(channel)) is not None}
        for address in addresses:
            for lane in lanes.values():
                for beat in self._heartbeats(broker, lane):
                    spawn(self._tell(broker, address, lane, beat))

    def _heartbeats(self, broker: str, lane: Lane) -> list[RemotingCommand]:
        """The last heartbeats of this lane's clients which are members at this broker."""
        enrolments = [self._enrolments.get(channel) for channel in lane.held]
        return [one.heartbeat for one in enrolments if one is not None and broker in one.brokers and one.heartbeat]

    # What brokers ask of clients.

    def _pushed(self, lane: Lane, broker: str, _: RemotingConnection, command: RemotingCommand) -> Reply | None:
        find = _ADDRESSEES.get(command.code)
        if find is None:
            raise UnsupportedRequest(f"a broker cannot ask request {command.code} of a client")
        channel = find(lane, command)
        if channel is None or channel.closed:
            raise ConsumerNotOnline("the client is not connected any more")
        # Old brokers do not say who they are; the client needs the name to answer through any replica.
        command.fields.setdefault("bname", broker)
        return self._push(channel, command)


def _groups(lane: Lane, channel: Channel) -> Groups:
    seats = lane.held.get(channel, ())
    return Groups(
        frozenset(group for role, group in seats if role is Role.PRODUCER),
        frozenset(group for role, group in seats if role is Role.CONSUMER),
    )


def _farewells(client_id: str, groups: Groups, heartbeat: RemotingCommand | None) -> list[RemotingCommand]:
    """UNREGISTER_CLIENT for each group."""
    fields = [{"consumerGroup": group} for group in sorted(groups.consumers)]
    fields += [{"producerGroup": group} for group in sorted(groups.producers) if group != INNER_PRODUCER]
    requests = [commands.request(RequestCode.UNREGISTER_CLIENT, {"clientID": client_id, **field}) for field in fields]
    if heartbeat is not None:
        for request in requests:
            request.header["language"] = heartbeat.header.get("language")
            request.header["version"] = heartbeat.header.get("version")
    return requests


def _consumer(field: str) -> Callable[[Lane, RemotingCommand], Channel | None]:
    return lambda lane, command: lane.seats.get((Role.CONSUMER, command.fields.get(field, "")))


def _checked_producer(lane: Lane, command: RemotingCommand) -> Channel | None:
    """Who sent the half message: its PGROUP property says which group."""
    half = messages.decode_messages(command.body)
    group = properties.get(half[0].properties, properties.PRODUCER_GROUP) if half else None
    return lane.seats.get((Role.PRODUCER, group or ""))


def _requester(lane: Lane, command: RemotingCommand) -> Channel | None:
    """Who waits for a reply: the replier put the client id into the reply's properties."""
    client_id = properties.get(command.fields.get("properties", ""), properties.MESSAGE_REPLY_TO_CLIENT)
    return next((channel for channel in lane.held if channel.session.client_id == client_id), None)


_ADDRESSEES: dict[int, Callable[[Lane, RemotingCommand], Channel | None]] = {
    RequestCode.CHECK_TRANSACTION_STATE: _checked_producer,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _consumer("consumerGroup"),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _consumer("group"),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _consumer("group"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _consumer("consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consumer("consumerGroup"),
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: _requester,
}
