"""A remoting client whose topics and groups have names of their own."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

from protocol_negotiation.peer import Peer
from proxy.core.remoting_channel import RemotingChannel
from proxy.traffic_rules import name_rewriting
from proxy.traffic_rules.name_mapping import Names
from proxy.traffic_rules.name_rewriting import NameRewriting
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import RemotingError
from remoting.flow_control import Limits
from remoting.pending_request import LostHandler
from remoting.timeout_wheel import TimeoutWheel


class NamespacedChannel(RemotingChannel):
    """What it says comes to the core in the brokers' names, and what it is told, in its own."""

    __slots__ = ("_renaming",)

    def __init__(
        self,
        wheel: TimeoutWheel,
        handler: Handler,
        on_close: Callable[[RemotingConnection], None],
        peer: Peer,
        limits: Limits,
        names: Names,
    ) -> None:
        self._renaming = NameRewriting(names)
        # The core takes any channel.
        serve = partial(self._renaming.serve, cast(name_rewriting.Handler, handler))
        super().__init__(wheel, cast(Handler, serve), on_close, peer, limits)

    def request(
        self,
        command: RemotingCommand,
        timeout: float,
        future: "asyncio.Future[RemotingCommand] | None" = None,
        lost: LostHandler | None = None,
    ) -> "asyncio.Future[RemotingCommand]":
        code = command.code
        try:
            asked = self._renaming.asked(command)
        except RemotingError as error:
            refused = self.loop.create_future() if future is None else future
            refused.set_exception(error)
            return refused
        reply = super().request(asked, timeout, future, lost)
        reply.add_done_callback(partial(self._renaming.answered, code))
        return reply

    def oneway(self, command: RemotingCommand) -> None:
        try:
            asked = self._renaming.asked(command)
        except RemotingError:
            # Nothing that it could make sense of.
            return
        super().oneway(asked)
