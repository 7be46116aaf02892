"""Checks: functions that run before a request is handled and reject it by raising its error."""

import logging
import math
from collections.abc import Callable
from typing import Final

from proxy.core import send_checks
from proxy.core.context import Context
from proxy.settings.model import Settings
from remoting.errors import InvalidRequest, NotPermitted, UnsupportedRequest
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
        # It has no lite topics, encodes records itself, and copies no half messages.
        return (well_formed,)
    checks: tuple[Check, ...] = (well_formed, send_checks.records, send_checks.half_messages, send_checks.lite_queues)
    return checks if access_key is None else (*checks, OwnCredentials(access_key).check)


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
