"""Checks: plain functions that a request passes before it is handled; one that refuses raises its error."""

import asyncio
from collections.abc import Callable

from proxy.core.context import Context
from remoting.codes import GO_AWAY_VERSION, RequestCode
from remoting.command import RemotingCommand
from remoting.errors import GoAway, InvalidRequest, NotPermitted, Overloaded, UnsupportedRequest
from remoting.requests import Action, Direction

Check = Callable[[Context], None]


def well_formed(context: Context) -> None:
    """The request table has a row for the code, clients may send it, and no required ext field is missing."""
    spec = context.spec
    if spec is None or spec.direction is Direction.BROKER:
        raise UnsupportedRequest(f"request code {context.code} is not supported")
    if not spec.required <= context.fields.keys():
        missing = ", ".join(sorted(spec.required - context.fields.keys()))
        raise InvalidRequest(f"{spec.name} lacks the field {missing}")


class Tools:
    """What operators' tools may do about topics and groups here: all, read, none. Clients are not concerned."""

    def __init__(self, permitted: str) -> None:
        self._actions = _TOOL_ACTIONS[permitted]
        self._permitted = permitted

    def __call__(self, context: Context) -> None:
        spec = context.spec
        if spec is not None and spec.tool and spec.action not in self._actions:
            raise NotPermitted(f"{spec.name} is not permitted here: the setting `tools` is {self._permitted!r}")


_TOOL_ACTIONS = {"all": frozenset(Action), "read": frozenset((Action.GET,)), "none": frozenset[Action]()}


class Drain:
    """While the replica shuts down, clients that know how are sent elsewhere.

    Oneway requests are still served: their senders would never learn that they were not.
    """

    def __init__(self) -> None:
        # Health says no from here on; requests are served until `draining`.
        self.announced = False
        self.draining = False
        self._polls: set[asyncio.Future[RemotingCommand]] = set()

    def __call__(self, context: Context) -> None:
        command = context.command
        if self.draining and may_go(context) and not command.is_oneway and context.code not in _SERVED_TO_THE_END:
            raise GoAway(_GOING)

    def watch(self, poll: "asyncio.Future[RemotingCommand]") -> None:
        """A long poll is under way: nobody wants to wait for its end."""
        if isinstance(poll, asyncio.Task):
            # It waits for a route yet, and an outcome cannot be given to a task.
            return
        self._polls.add(poll)
        poll.add_done_callback(self._polls.discard)

    def start(self) -> None:
        """Send clients elsewhere from now on, those that wait in a long poll too."""
        self.announced = self.draining = True
        for poll in list(self._polls):
            if not poll.done():
                poll.set_exception(GoAway(_GOING))

    def stop(self) -> None:
        """Serve everybody again."""
        self.announced = self.draining = False


_GOING = "this replica is going away; connect again"
_SERVED_TO_THE_END = (RequestCode.UNREGISTER_CLIENT,)


def may_go(context: Context) -> bool:
    """True where the client knows how to reconnect when it is told GO_AWAY."""
    return context.channel.supports_go_away and context.command.version > GO_AWAY_VERSION


def may_end(context: Context) -> bool:
    """True where a poll under way may be ended by GO_AWAY: its client goes, or it came by another protocol, which has
    words of its own for a poll that found nothing."""
    return may_go(context) or not context.channel.supports_go_away


class Budget:
    """Bodies of all requests under way, in bytes, are bounded, whoever sent them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def __call__(self, context: Context) -> None:
        if self.used > self.limit:
            raise Overloaded(f"{self.used} bytes of requests are under way; try again later")
