"""Requests to brokers on an operator's behalf: to one, or to several concurrently."""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError, ServiceUnavailable
from remoting.requests import request_spec

# Seconds for one request.
TIMEOUT = 5.0
# Below the three seconds that RocketMQ's dashboard waits.
SHORT_TIMEOUT = 2.5


class BrokerRefused(RemotingError):
    """A broker replied with an error. answer: its response code."""

    def __init__(self, broker: str, answer: int, remark: str | None) -> None:
        super().__init__(f"the broker {broker} answered {answer}: {remark or 'without a remark'}")
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Answers:
    """Replies by broker; `missing` has the error of each broker without one."""

    replies: dict[str, RemotingCommand]
    missing: tuple[str, ...]


async def request(
    core: Messaging,
    broker: str,
    code: RequestCode,
    fields: dict[str, str],
    body: bytes = b"",
    *,
    timeout: float = TIMEOUT,
) -> RemotingCommand:
    """Return a broker's reply, successful or not. Raises as `Backend.request` does."""
    return await core.backend.request(broker, request_spec(code), commands.request(code, fields, body), timeout, None)


async def ask(
    core: Messaging,
    broker: str,
    code: RequestCode,
    fields: dict[str, str],
    body: bytes = b"",
    *,
    timeout: float = TIMEOUT,
) -> RemotingCommand:
    """Return a broker's successful reply. Raises BrokerRefused, and as `request` does."""
    reply = await request(core, broker, code, fields, body, timeout=timeout)
    if reply.code != 0:
        raise BrokerRefused(broker, reply.code, reply.remark)
    return reply


async def found(
    core: Messaging,
    broker: str,
    code: RequestCode,
    fields: dict[str, str],
    nothing: Collection[int],
    *,
    timeout: float = TIMEOUT,
) -> RemotingCommand | None:
    """Return the reply; None if its code means that nothing was found."""
    try:
        return await ask(core, broker, code, fields, timeout=timeout)
    except BrokerRefused as error:
        if error.answer in nothing:
            return None
        raise


async def ask_each(
    core: Messaging,
    brokers: Iterable[str],
    code: RequestCode,
    fields: dict[str, str],
    nothing: Collection[int] = (),
) -> Answers:
    """Send the same request to several brokers; those that have nothing (`nothing`: such response codes) are in neither
    list, and those without a reply within SHORT_TIMEOUT are missing.

    Raises the first broker's error if no broker replied.
    """
    names = sorted(brokers)
    if not names:
        raise ServiceUnavailable("no broker is known")
    asked = (found(core, broker, code, dict(fields), nothing, timeout=SHORT_TIMEOUT) for broker in names)
    replies: dict[str, RemotingCommand] = {}
    failures: list[RemotingError] = []
    for broker, reply in zip(names, await asyncio.gather(*asked, return_exceptions=True), strict=True):
        if isinstance(reply, RemotingError):
            failures.append(reply)
        elif isinstance(reply, BaseException):
            raise reply
        elif reply is not None:
            replies[broker] = reply
    if len(failures) == len(names):
        raise failures[0]
    return Answers(replies, tuple(str(failure) for failure in failures))
