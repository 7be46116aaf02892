"""Checks: functions that run before a request is handled and reject it by raising its error."""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final

from proxy.core import send_checks
from proxy.core.context import Context
from proxy.core.long_poll import end_poll
from proxy.settings.model import Settings
from remoting.codes import GO_AWAY_VERSION, RequestCode
from remoting.command import RemotingCommand
from remoting.errors import GoAway, InvalidRequest, NotPermitted, Overloaded, UnsupportedRequest
from remoting.names import MAX_NAME_LENGTH
from remoting.permissions import requests_stacks
from remoting.requests import Action, Direction, RequestSpec
from remoting.signature import ACCESS_KEY

Check = Callable[[Context], None]

# Each request is compared with them, and reading a member from its enum takes as long as five such comparisons.
_BROKER: Final = Direction.BROKER
_BOTH: Final = Direction.BOTH

# Bytes of a long poll's body: official clients send none, or a few filter expressions.
_MAX_POLL_BODY: Final = 64 * 1024


def well_formed(context: Context) -> None:
    """Reject codes that are not in the request table or not for clients, missing fields, names over the limit."""
    spec = context.spec
    if spec is None or spec.direction is _BROKER:
        raise UnsupportedRequest(f"request type {context.code} not supported")
    fields = context.fields
    for name in spec.required_fields:
        if name not in fields:
            missing = ", ".join(sorted(spec.required.difference(fields)))
            raise InvalidRequest(f"{spec.name} lacks the field {missing}")
    if spec.poll is not None and context.size > _MAX_POLL_BODY:
        raise InvalidRequest(f"{spec.name} has a body of {context.size} bytes; at most {_MAX_POLL_BODY} are allowed")
    for name in spec.names:
        value = fields.get(name)
        if value is not None and len(value) > MAX_NAME_LENGTH:
            length = len(value)
            raise InvalidRequest(f"the field {name} of {length} characters is over the limit of {MAX_NAME_LENGTH}")


class OwnCredentials:
    """Rejects requests of remoting clients that are signed with Gantry's own credentials towards the brokers.

    Brokers show a client the signatures of requests that they hand to it, and those can be sent again with other
    requests (`proxy.core.push_relay`). Only Gantry has a reason to sign as Gantry.
    """

    def __init__(self, access_key: str) -> None:
        self._access_key = access_key
        self._logged_at = -math.inf

    def check(self, context: Context) -> None:
        if context.fields.get(ACCESS_KEY) != self._access_key or not context.channel.signs:
            return
        if context.started - self._logged_at >= _LOG_INTERVAL:
            self._logged_at = context.started
            _log.warning(
                "%s sends a request with cluster.access_key, which is for Gantry alone: refused; "
                "give clients and tools users of their own",
                context.channel.peer.address,
            )
        raise NotPermitted("the access key is that of Gantry itself; use another user")


_log = logging.getLogger("gantry.auth")
# Seconds between log lines, which any client can cause.
_LOG_INTERVAL: Final = 60.0


def first_checks(settings: Settings) -> tuple[Check, ...]:
    """Return the checks before the decision about permissions. An embedded broker gets no signatures of Gantry."""
    access_key = settings.cluster.access_key
    if settings.has_embedded_broker:
        # It has no lite topics, and encodes records itself.
        return (well_formed,)
    if access_key is None:
        return well_formed, send_checks.records, send_checks.lite_queues
    return well_formed, send_checks.records, send_checks.lite_queues, OwnCredentials(access_key).check


class Tools:
    """Rejects requests of operators' tools that the setting `tools` (all, read or none) does not permit."""

    def __init__(self, permitted: str) -> None:
        self._actions = _TOOL_ACTIONS[permitted]
        self._permitted = permitted

    def check(self, context: Context) -> None:
        spec = context.spec
        if spec is None:
            return
        if spec.tool and _effect(context, spec) not in self._actions:
            raise NotPermitted(f"{spec.name} is not permitted here: the setting `tools` is {self._permitted!r}")
        if spec.direction is _BOTH and context.size:
            raise InvalidRequest(f"{spec.name} has no body when it comes from a client")


def _effect(context: Context, spec: RequestSpec) -> Action:
    return Action.UPDATE if requests_stacks(context.fields) else spec.action


_TOOL_ACTIONS: Final = {"all": frozenset(Action), "read": frozenset((Action.GET,)), "none": frozenset[Action]()}


class Drain:
    """Rejects requests with GO_AWAY while the replica drains, for clients that support it.

    Oneway requests are still served: their senders would not notice a rejection.
    """

    def __init__(self) -> None:
        # Health checks fail from `announced` on, requests are rejected from `draining` on.
        self.announced = False
        self.draining = False
        # The clients' long polls in flight, by their replies.
        self.polls: dict[asyncio.Future[RemotingCommand], Context] = {}

    def check(self, context: Context) -> None:
        """Reject a request while the replica drains, if its client can take it elsewhere."""
        command = context.command
        if accepts_go_away(context) and not command.is_oneway and context.code not in _FAREWELLS:
            raise GoAway(_REMARK)

    def start(self) -> None:
        """Reject requests from now on, and end the long polls."""
        self.announced = self.draining = True
        for reply, context in list(self.polls.items()):
            if _may_end_poll(context):
                end_poll(reply, GoAway(_REMARK))

    def stop(self) -> None:
        """Serve all requests again."""
        self.announced = self.draining = False


_REMARK: Final = "this replica is going away; connect again"
# A client that leaves need not connect again.
_FAREWELLS: Final = (RequestCode.UNREGISTER_CLIENT,)


def accepts_go_away(context: Context) -> bool:
    """Return whether the client reconnects when it receives GO_AWAY."""
    return context.channel.supports_go_away and context.command.version > GO_AWAY_VERSION


def _may_end_poll(context: Context) -> bool:
    """Return whether GO_AWAY may end this long poll.

    True if the client reconnects, and for gRPC clients, whose frontend answers such a poll with "no message".
    """
    return accepts_go_away(context) or not context.channel.supports_go_away


class Budget:
    """Rejects requests while all in-flight requests occupy more than `limit` bytes (`Context.memory`).

    limit: None: no limit. on_full: called with a request over the limit; rejects it by raising Overloaded.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit: float = math.inf if limit is None else limit
        self.used = 0
        self.on_full: Callable[[Context], None] = self.reject

    def reject(self, _: Context) -> None:
        """Raise Overloaded."""
        raise Overloaded(f"{self.used} bytes of requests are in flight; try again later")
