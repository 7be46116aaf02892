"""Receives that wait for a rate limit: how long they may wait, and their reply if that is too short."""

from collections.abc import Awaitable

from proxy.core.context import Context
from proxy.core.empty_poll import empty_poll
from proxy.core.messaging import completed
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.messages import PullSysFlag
from remoting.request_kinds import RequestKind

# Seconds that any receive may wait, although its client asks for a shorter wait or none.
_MIN_WAIT = 1.0
# Seconds that a signed receive may wait: its ext fields cannot be changed, so that the broker's own wait is added.
_MAX_SIGNED_WAIT = 5.0
# Seconds that any receive may wait, however long its client would: the client then repeats the request.
_MAX_WAIT = 60.0


class FlowControlled(RemotingError):
    """A limit is exceeded. Producers report it to the application: their clients do not retry after this code."""

    code = ResponseCode.FLOW_CONTROL


def max_wait(context: Context) -> float:
    """Return the seconds that a receive may wait for a limit."""
    spec = context.known_spec
    poll = spec.poll
    wait = context.command.integer(poll) / 1000 if poll is not None else 0.0
    if spec.kind is RequestKind.PULL and not context.command.integer("sysFlag") & PullSysFlag.SUSPEND:
        wait = 0.0
    return min(max(wait, _MIN_WAIT), _MAX_SIGNED_WAIT if context.signed else _MAX_WAIT)


def shorten_poll(context: Context, seconds: float) -> None:
    """Subtract the wait for a limit from the poll time that the broker reads, unless the request is signed."""
    poll = context.known_spec.poll
    if poll is not None and not context.signed:
        remaining = max(0.0, int(context.fields[poll]) / 1000 - seconds)
        context.fields[poll] = str(int(remaining * 1000))


def empty_reply(context: Context, rule: str) -> Awaitable[RemotingCommand]:
    """Return the reply of a receive that waited as long as it may: no message found.

    After an error, remoting clients would repeat the request within 20 ms. Raises FlowControlled for a gRPC client,
    whose gateway reports it after a pause.
    """
    text = f"rate limit exceeded (rule {rule})"
    if context.channel.protocol == "grpc":
        raise FlowControlled(text)
    return completed(empty_poll(context.known_spec, context.fields, text))
