"""The messaging core: handling of requests of all protocols.

    handle(channel, command) -> future of the reply

A request passes the checks, then its code's handler or, for most codes, forwarding to the broker that it names, then
the observers. Forwarding a request with a cached route creates no task.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final

from proxy.core.advertised_listeners import ListenerRoutes
from proxy.core.backend import Backend
from proxy.core.budget import Budget
from proxy.core.channel import Channel
from proxy.core.checks import Check
from proxy.core.client_bounds import ClientBounds
from proxy.core.client_registry import ClientRegistry, ConsumerGroupChange
from proxy.core.context import Context
from proxy.core.drain import Drain
from proxy.core.empty_poll import UNREAD
from proxy.core.events import Observer, publish
from proxy.core.events.request import of_request
from proxy.core.long_poll import end_poll
from proxy.core.signing import SigningPolicy
from proxy.settings.model import Settings
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import GoAway, NotPermitted, RemotingError
from remoting.outcomes import Reply
from remoting.requests import POPS, PULLS, REQUESTS, RequestSpec
from remoting.taskless import run_eagerly
from remoting.tasks import isolated

_log = logging.getLogger("gantry.messaging")
# Handles the requests of one code: an awaitable of the reply, or None for a forwarded oneway request.
Handling = Callable[["Messaging", Context], Awaitable[RemotingCommand] | None]
# Serve handles a request that has passed the checks; a gate wraps it and may delay or reject the request.
Serve = Callable[[Context], Awaitable[RemotingCommand] | None]
Gate = Callable[[Context, Serve], Awaitable[RemotingCommand] | None]
ReplyGuard = Callable[[Context, RemotingCommand], None]

_NO_GUARDS: Final[Mapping[int, ReplyGuard]] = {}
_UNBOUNDED: Final = ClientBounds()
_UNSIGNED: Final = SigningPolicy()


@dataclass(frozen=True, slots=True)
class Entrance:
    """A way to the core beside the clients' listeners, with the same checks, gate, budget and observers.

    requests: rows of the served requests. serve: serves a request that has passed the checks, in place of the core's
    handlers. A drain does not wait for its requests.
    """

    requests: Mapping[int, RequestSpec]
    serve: Serve


class Messaging:
    """The messaging core.

    requests: rows of the served requests. handlers: handle their codes; forward: handles all other codes. observers:
    receive an observation of each answered request on an observed channel. listeners: called with the changes of
    consumer groups. reply_guards: called with the replies to requests of their codes, which they may change; not with
    errors. signing: the rules about signatures of requests.
    """

    def __init__(
        self,
        settings: Settings,
        registry: ClientRegistry,
        backend: Backend,
        *,
        handlers: Mapping[int, Handling],
        forward: Handling,
        checks: Sequence[Check],
        requests: Mapping[int, RequestSpec] = REQUESTS,
        observers: Sequence[Observer] = (),
        listeners: Sequence[Callable[["Messaging", ConsumerGroupChange], None]] = (),
        reply_guards: Mapping[int, ReplyGuard] = _NO_GUARDS,
        signing: SigningPolicy = _UNSIGNED,
        bounds: ClientBounds = _UNBOUNDED,
    ) -> None:
        self.settings = settings
        self.registry = registry
        self.backend = backend
        # Of the listeners, once they are open.
        self.listener_routes = ListenerRoutes()
        self.budget = Budget(settings.limits.total_bytes)
        self.drain = Drain()
        # Requests without a reply, and the number of those that are not long polls.
        self.in_flight: set[Context] = set()
        self.active_requests = 0
        self._requests = requests
        self._handlers = handlers
        self._forward = forward
        self._checks = tuple(checks)
        # Wraps the handling of all requests while traffic rules are active.
        self.gate: Gate | None = None
        self.signing = signing
        self.shares, self.poll_turns, self.creations = bounds
        self._reply_guards = reply_guards
        self.observers = list(observers)
        self._listeners = listeners

    def handle(self, channel: Channel, command: RemotingCommand, entrance: Entrance | None = None) -> Reply | None:
        """Handle one request. For a oneway request, return None or a future whose result is meaningless.

        Raises RemotingError if the request is rejected at once.
        """
        requests = self._requests if entrance is None else entrance.requests
        context = Context(channel, command, requests.get(command.code), monotonic())
        try:
            for check in self._checks:
                check(context)
            if self.budget.used > self.budget.limit:
                self.budget.on_full(context)
            if self.drain.draining:
                self.drain.check(context)
            if entrance is not None:
                serve = entrance.serve
                handling = serve(context) if self.gate is None else self.gate(context, serve)
            elif self.gate is None:
                handling = self._handlers.get(context.code, self._forward)(self, context)
            else:
                handling = self.gate(context, self._serve)
        except RemotingError as error:
            self._observe(context, error.code, monotonic())
            if isinstance(error, NotPermitted) and error.delay:
                return _delayed(error)
            raise
        except Exception:
            _log.exception("request %d of %s failed", context.code, channel.peer.address)
            self._observe(context, RemotingError.code, monotonic())
            raise RemotingError("internal error") from None
        if handling is None:
            self._observe(context, 0, monotonic())
            return None
        reply = handling if isinstance(handling, asyncio.Future) else as_future(handling)
        spec = context.spec
        poll = spec is not None and spec.poll is not None
        if reply.done() and not reply.cancelled() and reply.exception() is None:
            # The embedded broker replies at once; the reply waits for its callbacks.
            context.memory += len(reply.result().body)
        self.budget.used += context.memory
        self.in_flight.add(context)
        active = entrance is None and not poll
        self.active_requests += active
        reply.add_done_callback(partial(self._done, context, active))
        if poll:
            channel.session.polls[reply] = context
            if entrance is None:
                self.drain.polls[reply] = context
        return reply

    def end_polls_at(self, broker: str) -> None:
        """End the pops of gRPC clients at a broker that hangs; messages that it still delivers are released.

        Their frontend answers them with "no message", and the next ones are served by other brokers.
        """
        for context in list(self.in_flight):
            if context.broker == broker and context.code in POPS and not context.channel.supports_go_away:
                for reply, poll in list(context.channel.session.polls.items()):
                    if poll is context:
                        end_poll(reply, GoAway(f"the broker {broker} does not answer"))

    def _serve(self, context: Context) -> Awaitable[RemotingCommand] | None:
        return self._handlers.get(context.code, self._forward)(self, context)

    def changed(self, changes: Sequence[ConsumerGroupChange]) -> None:
        """Notify the listeners of changes of consumer groups."""
        for change in changes:
            for listener in self._listeners:
                isolated(listener, self, change)

    def _done(self, context: Context, active: bool, reply: Reply) -> None:
        now = monotonic()
        cancelled = reply.cancelled()
        error = None if cancelled else reply.exception()
        self.budget.used -= context.memory
        self.in_flight.discard(context)
        self.active_requests -= active
        if not active:
            # Not in a callback of its own: each takes 0.5 µs.
            context.channel.session.polls.pop(reply, None)
            self.drain.polls.pop(reply, None)
        context.end(now, not cancelled and error is None)
        if cancelled:
            self._observe(context, RemotingError.code, now)
        elif error is None:
            result = reply.result()
            if not active and context.code in _PULLS and context.channel.unread_bytes > self.settings.limits.unread:
                _drop_messages(context, result)
            guard = self._reply_guards.get(context.code)
            if guard is not None:
                guard(context, result)
            self._observe(context, result.code, now, result)
        else:
            self._observe(context, error.code if isinstance(error, RemotingError) else RemotingError.code, now)

    def _observe(self, context: Context, code: int, now: float, reply: RemotingCommand | None = None) -> None:
        if context.trace is not None:
            try:
                context.trace.finish(context, code, reply)
            except Exception:
                # As with observers, a failure must not affect the reply.
                _log.exception("ending a span failed")
        if context.channel.observed:
            try:
                observation = of_request(context, code, reply, now)
            except Exception:
                _log.exception("observing a request failed")
            else:
                publish(self.observers, observation)


def _pair(codes: frozenset[int]) -> tuple[int, int]:
    """Return two codes as a tuple: compiled code compares two numbers faster than it searches a set."""
    first, second = sorted(codes)
    return first, second


# A pull only reads: the client can repeat it. Popped messages are released instead (`handlers/pop.py`).
_PULLS: Final = _pair(PULLS)


def _drop_messages(context: Context, result: RemotingCommand) -> None:
    """Let the client repeat a pull, instead of keeping messages for a client that does not read."""
    if result.code == ResponseCode.SUCCESS:
        result.code = result.header["code"] = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
        result.header["remark"] = UNREAD
        result.fields["nextBeginOffset"] = context.fields.get("queueOffset", "0")
        result.body = b""


def _delayed(error: NotPermitted) -> Reply:
    """Return a future that fails after the error's delay, so that guesses of secrets take long."""
    loop = asyncio.get_running_loop()
    reply: Reply = loop.create_future()
    loop.call_later(error.delay, _fail, reply, error)
    return reply


def _fail(reply: Reply, error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)
        # The client may have gone; asyncio would then log the error, which is counted and audited already.
        reply.exception()


def as_future(handling: Awaitable[RemotingCommand]) -> Reply:
    """Return a future as it is, and for a coroutine the future of its result.

    A coroutine runs at once until it waits, so that its work counts for its connection's turn (`FairTurns`).
    """
    if isinstance(handling, asyncio.Future):
        return handling
    reply: Reply = asyncio.get_running_loop().create_future()
    try:
        result = run_eagerly(_result(handling))
    except Exception as error:
        reply.set_exception(error)
        return reply
    if isinstance(result, asyncio.Future):
        return result
    reply.set_result(result)
    return reply


def completed(response: RemotingCommand) -> Reply:
    """Return a reply that is completed already."""
    reply: Reply = asyncio.get_running_loop().create_future()
    reply.set_result(response)
    return reply


async def served(serve: Serve, context: Context) -> RemotingCommand:
    """Serve a request; return its reply, or a success that nothing sends for a oneway request."""
    handling = serve(context)
    return commands.success() if handling is None else await as_future(handling)


async def _result(handling: Awaitable[RemotingCommand]) -> RemotingCommand:
    return await handling
