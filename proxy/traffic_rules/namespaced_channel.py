"""Channel of a remoting client whose topics and groups have other names on the brokers."""

from collections.abc import Callable
from functools import partial
from typing import cast

from protocol_negotiation.fair_turns import FairTurns
from protocol_negotiation.peer import Peer
from proxy.core.principal import Principal
from proxy.core.remoting_channel import BrokerChannel, RemotingChannel
from proxy.traffic_rules import name_rewriting
from proxy.traffic_rules.name_mapping import NameMapping
from proxy.traffic_rules.name_rewriting import NameRewriting
from proxy.traffic_rules.user_names import NamesOfUser, UserNames
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import RemotingError
from remoting.flow_control import Limits
from remoting.outcomes import Reply
from remoting.pending_request import LostHandler
from remoting.timeout_wheel import TimeoutWheel


class NamespacedChannel(RemotingChannel):
    """Rewrites names: requests reach the core with the brokers' names, replies and pushes the client with its own.

    names: the mapping, or that of each user.
    """

    __slots__ = ("_rewriting",)

    def __init__(
        self,
        wheel: TimeoutWheel,
        handler: Handler,
        on_close: Callable[[RemotingConnection], None],
        peer: Peer,
        limits: Limits,
        names: NameMapping | NamesOfUser,
        turns: FairTurns | None = None,
    ) -> None:
        self._rewriting = NameRewriting(names) if isinstance(names, NameMapping) else UserNames(names)
        # The core accepts every kind of channel.
        serve = partial(self._rewriting.serve, cast(name_rewriting.Handler, handler))
        super().__init__(wheel, cast(Handler, serve), on_close, peer, limits, turns)

    def names_of(self, principal: Principal) -> NameMapping | None:
        """Return the name mapping of a request's sender; None if it uses the brokers' names."""
        return self._rewriting.names_of(principal)

    def request(
        self,
        command: RemotingCommand,
        timeout: float,
        future: Reply | None = None,
        lost: LostHandler | None = None,
    ) -> Reply:
        """Send a broker's request to the client, in the client's names. The future fails if they cannot be mapped."""
        code = command.code
        try:
            rewritten = self._rewriting.rewrite_push(command)
        except RemotingError as error:
            failed = self.loop.create_future() if future is None else future
            failed.set_exception(error)
            return failed
        reply = super().request(rewritten, timeout, future, lost)
        reply.add_done_callback(partial(self._rewriting.rewrite_push_reply, code))
        return reply

    def oneway(self, command: RemotingCommand) -> None:
        """Send a broker's notification to the client, in the client's names, or drop it if they cannot be mapped."""
        try:
            rewritten = self._rewriting.rewrite_push(command)
        except RemotingError:
            return
        super().oneway(rewritten)


class NamespacedBrokerChannel(NamespacedChannel, BrokerChannel):
    """A namespaced client that is connected to the embedded broker itself."""

    __slots__ = ()
