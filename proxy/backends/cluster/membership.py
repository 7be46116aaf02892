"""Membership: makes our clients members of their groups at the brokers, as if they were connected there.

Because every broker knows them, the brokers' own machinery works for clients behind any number of
replicas: retry topics, consumer lists, rebalance notices, transaction checks, the official tools.
A replica that dies takes its connections along, and the brokers notice at once.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from proxy.backends.cluster.membership_connections import MembershipConnection, MembershipConnections
from proxy.backends.cluster.server_connection import Reply, ServerConnection
from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.client_registry import INNER_PRODUCER, Groups, Role
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import ConsumerNotOnline, UnsupportedRequest
from remoting.tasks import spawn_quietly

_log = logging.getLogger("gantry.membership")

# A broker that does not answer must not hold a client's heartbeat up for longer, in seconds.
_TIMEOUT = 2.0
# After this time, in seconds, without a word the connection is given up.
_GIVEN_UP = 10.0
# After a broker was lost: how long until its members are enrolled again, in seconds.
_AGAIN = 1.0
# How often that is tried. After that it is for the name servers to say when it is back.
_TRIES = 120


class Registration:
    """At which broker names one client has been enrolled.

    turn: brokers handle heartbeats and farewells on different threads, so one must be answered
    before the next is sent.
    """

    __slots__ = ("brokers", "turn")

    def __init__(self) -> None:
        self.brokers: set[str] = set()
        self.turn = asyncio.Lock()


class Membership:
    """Our clients' membership at the brokers. What is told of a client is its session's last heartbeat."""

    def __init__(
        self,
        link: Callable[[str, Handler, Callable[[ServerConnection], None]], ServerConnection],
        addresses: Callable[[str], Iterable[str]],
        push: Push,
    ) -> None:
        self._make_link = link
        self._addresses = addresses
        self._push = push
        self._lanes = MembershipConnections()
        self._links: dict[tuple[str, int], ServerConnection] = {}
        self._enrolments: dict[Channel, Registration] = {}
        self._recovering: set[tuple[str, int]] = set()

    async def register(self, channel: Channel, groups: Groups, brokers: Collection[str]) -> None:
        """Send the client's heartbeat to these brokers, masters and slaves; done when all have answered or failed."""
        enrolment = self._enrolments.setdefault(channel, Registration())
        async with enrolment.turn:
            if channel.closed:
                # It went while its heartbeat waited for a route, and has been seen off already.
                if self._lanes.lane(channel) is None:
                    self._enrolments.pop(channel, None)
                return
            # A withdrawal that had the turn before has taken it for ended.
            self._enrolments[channel] = enrolment
            lane, left = self._lanes.seat(channel, groups)
            enrolment.brokers.update(brokers)
            if left is not None:
                await self._withdraw(left, channel, _groups(left, channel), None)
                brokers = enrolment.brokers
            targets = [(name, address) for name in sorted(brokers) for address in self._addresses(name)]
            await asyncio.gather(*(self._introduce(channel, lane, name, address) for name, address in targets))

    async def unregister(
        self, channel: Channel, groups: Groups, unregister_command: RemotingCommand | None = None
    ) -> None:
        """Tell every broker that the client has left these groups, in its own words where there are any.

        Done when all have answered or failed.
        """
        enrolment = self._enrolments.get(channel)
        if enrolment is None:
            return
        async with enrolment.turn:
            lane = self._lanes.lane(channel)
            if lane is not None:
                await self._withdraw(lane, channel, groups, unregister_command)
            if self._lanes.lane(channel) is None:
                self._enrolments.pop(channel, None)

    def link(self, channel: Channel, address: str) -> ServerConnection | None:
        """The connection by which a broker knows the client, if it does."""
        lane = self._lanes.lane(channel)
        return None if lane is None else self._links.get((address, lane.number))

    def close(self) -> None:
        """Close all lanes."""
        for link in self._links.values():
            link.close()

    @property
    def connections(self) -> int:
        """How many connections to brokers carry memberships."""
        return len(self._links)

    async def _introduce(self, channel: Channel, lane: MembershipConnection, broker: str, address: str) -> bool:
        """Send a client's heartbeat to a broker; one that cannot be reached is told later (`_recover`)."""
        heartbeat = channel.session.heartbeat
        if heartbeat is None or await self._tell(self._link(broker, address, lane), heartbeat):
            return True
        self._recover(broker, lane, address)
        return False

    async def _tell(self, link: ServerConnection, command: RemotingCommand) -> bool:
        """Send one membership request over a lane; true where it has reached the broker.

        A slow broker's answer is not waited for to its end: telling it all again would only make it slower.
        """
        future: Reply = asyncio.get_running_loop().create_future()
        link.request(command.copy_with_response(), _GIVEN_UP, future)
        name = RequestCode(command.code).name
        await asyncio.wait((future,), timeout=_TIMEOUT)
        if not future.done():
            reached = link.connection is not None
            if not reached:
                # Still being dialled: it must not go out when others, a unregister_command perhaps, had the turn.
                future.cancel()
            # Not otherwise: should the broker stay silent until its time is up, it is given up.
            future.add_done_callback(lambda late: late.cancelled() or late.exception())
            _log.debug("%s takes its time for %s", link.address, name)
            return reached
        if (error := future.exception()) is not None:
            _log.debug("%s has not been told %s: %s", link.address, name, error)
            return False
        reply = future.result()
        if reply.code != 0:
            _log.warning("%s refused %s: %s", link.address, name, reply.remark)
        return True

    async def _withdraw(
        self, lane: MembershipConnection, channel: Channel, groups: Groups, unregister_command: RemotingCommand | None
    ) -> None:
        requests = [unregister_command] if unregister_command is not None else _farewells(channel, groups)
        # Only where there is a connection: a broker that has lost it has dropped its members by itself.
        links = [link for (_, number), link in self._links.items() if number == lane.number and link.connection]
        await asyncio.gather(*(self._tell(link, request) for request in requests for link in links))
        # Not before the brokers have answered: they handle heartbeats and farewells on different
        # threads, and a successor on this seat might be removed in its place.
        if self._lanes.free(lane, channel, groups):
            for key in [key for key in self._links if key[1] == lane.number]:
                self._links.pop(key).close()

    def _link(self, broker: str, address: str, lane: MembershipConnection) -> ServerConnection:
        key = (address, lane.number)
        link = self._links.get(key)
        if link is None:
            link = self._make_link(address, partial(self._pushed, lane, broker), partial(self._lost, broker, lane))
            self._links[key] = link
        return link

    # A broker was lost: its members are enrolled again, their own heartbeats come only every 30 s.

    def _lost(self, broker: str, lane: MembershipConnection, link: ServerConnection) -> None:
        if lane.held:
            self._recover(broker, lane, link.address)

    def _recover(self, broker: str, lane: MembershipConnection, address: str) -> None:
        """See to it that a broker learns a lane's members again."""
        key = (address, lane.number)
        if key not in self._recovering:
            self._recovering.add(key)
            spawn_quietly(self._again(broker, lane, address))

    async def _again(self, broker: str, lane: MembershipConnection, address: str) -> None:
        try:
            # Not only while a name server lists it: a broker that was restarted is mostly back where it was.
            for _ in range(_TRIES):
                await asyncio.sleep(_AGAIN)
                if not lane.held or await self._introduce_all(broker, lane, address):
                    return
        finally:
            self._recovering.discard((address, lane.number))

    def appeared(self, broker: str, addresses: Iterable[str]) -> None:
        """A broker is there at these addresses, of which we did not know: it is told its members."""
        lanes = {lane.number: lane for channel in self._enrolments if (lane := self._lanes.lane(channel)) is not None}
        for address in addresses:
            for lane in lanes.values():
                if (address, lane.number) not in self._recovering:
                    spawn_quietly(self._introduce_all(broker, lane, address))

    async def _introduce_all(self, broker: str, lane: MembershipConnection, address: str) -> bool:
        """Send the heartbeats of a lane's members at this broker; true where it has taken all of them."""
        told = await asyncio.gather(*(self._introduce_again(one, broker, lane, address) for one in list(lane.held)))
        return all(told)

    async def _introduce_again(self, channel: Channel, broker: str, lane: MembershipConnection, address: str) -> bool:
        enrolment = self._enrolments.get(channel)
        if enrolment is None or broker not in enrolment.brokers:
            return True
        async with enrolment.turn:
            # It may have left, or moved, while others had the turn.
            if channel.closed or self._lanes.lane(channel) is not lane:
                return True
            return await self._introduce(channel, lane, broker, address)

    # What brokers ask of clients.

    def _pushed(
        self, lane: MembershipConnection, broker: str, _: RemotingConnection, command: RemotingCommand
    ) -> Reply | None:
        find = _ADDRESSEES.get(command.code)
        if find is None:
            raise UnsupportedRequest(f"a broker cannot ask request {command.code} of a client")
        channel = find(lane, command)
        if channel is None or channel.closed:
            raise ConsumerNotOnline("the client is not connected any more")
        # Old brokers do not say who they are; the client needs the name to answer through any replica.
        command.fields.setdefault("bname", broker)
        return self._push(channel, command)


def _groups(lane: MembershipConnection, channel: Channel) -> Groups:
    seats = lane.held.get(channel, ())
    return Groups(
        frozenset(group for role, group in seats if role is Role.PRODUCER),
        frozenset(group for role, group in seats if role is Role.CONSUMER),
    )


def _farewells(channel: Channel, groups: Groups) -> list[RemotingCommand]:
    """UNREGISTER_CLIENT for each group, in the name of a client that cannot say it itself any more."""
    session = channel.session
    fields = [{"consumerGroup": group} for group in sorted(groups.consumers)]
    fields += [{"producerGroup": group} for group in sorted(groups.producers) if group != INNER_PRODUCER]
    requests = []
    for field in fields:
        request = commands.request(RequestCode.UNREGISTER_CLIENT, {"clientID": session.client_id or "", **field})
        request.header.update(language=session.language, version=session.version)
        requests.append(request)
    return requests


def _consumer(field: str) -> Callable[[MembershipConnection, RemotingCommand], Channel | None]:
    return lambda lane, command: lane.seats.get((Role.CONSUMER, command.fields.get(field, "")))


def _checked_producer(lane: MembershipConnection, command: RemotingCommand) -> Channel | None:
    """Who sent the half message: its PGROUP property says which group."""
    half = messages.decode_messages(command.body)
    group = properties.get(half[0].properties, properties.PRODUCER_GROUP) if half else None
    return lane.seats.get((Role.PRODUCER, group or ""))


def _subscriber(lane: MembershipConnection, command: RemotingCommand) -> Channel | None:
    """The client that a broker names by its id."""
    client_id = command.fields.get("clientId")
    return next((channel for channel in lane.held if channel.session.client_id == client_id), None)


def _requester(lane: MembershipConnection, command: RemotingCommand) -> Channel | None:
    """Who waits for a reply: the replier put the client id into the reply's properties."""
    client_id = properties.get(command.fields.get("properties", ""), properties.MESSAGE_REPLY_TO_CLIENT)
    return next((channel for channel in lane.held if channel.session.client_id == client_id), None)


_ADDRESSEES: dict[int, Callable[[MembershipConnection, RemotingCommand], Channel | None]] = {
    RequestCode.CHECK_TRANSACTION_STATE: _checked_producer,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _consumer("consumerGroup"),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _consumer("group"),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _consumer("group"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _consumer("consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consumer("consumerGroup"),
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: _requester,
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE: _subscriber,
}
