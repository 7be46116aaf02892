"""Mirrors: copies of messages that were stored, sent to another topic. Nobody waits for them."""

from collections import Counter
from enum import StrEnum
from functools import partial

from proxy.core.backend import Backend
from proxy.core.messaging import Reply
from proxy.traffic_rules.batches import is_batch
from proxy.traffic_rules.effects import Active
from proxy.traffic_rules.model import Mirror
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import STORED
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.requests import REQUESTS, SEND_FIELD_NAMES
from remoting.routes import TopicRoute
from remoting.tasks import spawn_quietly

# The property that every copy has: the rule's name. A message with it is not copied again.
MIRRORED = "GANTRY_MIRROR"
# Seconds that a broker has to store a copy.
_TIMEOUT = 3.0
# A client's credentials are for what it said itself.
_CREDENTIALS = ("AccessKey", "Signature", "SecurityToken")


class Outcome(StrEnum):
    """What became of a copy; the values are metric labels."""

    STORED = "stored"
    FAILED = "failed"
    DROPPED = "dropped"  # too many were under way
    SKIPPED = "skipped"  # a copy already, or one half of a transaction


class Mirrors:
    """Sends copies. counts: what became of them, by rule and outcome."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.in_flight: Counter[str] = Counter()

    def send(self, backend: Backend, mirror: Active[Mirror], original: RemotingCommand) -> None:
        """Send a copy of a send that was served. Never raises."""
        rule = mirror.rule
        copy = _copy(rule, original)
        if copy is None:
            self._count(rule, Outcome.SKIPPED)
        elif self.in_flight[rule.name] >= rule.in_flight:
            self._count(rule, Outcome.DROPPED)
        else:
            mirror.hit()
            self.in_flight[rule.name] += 1
            route = backend.cached_route(rule.to)
            if route is None:
                spawn_quietly(self._send_cold(backend, rule, copy))
            else:
                self._send(backend, rule, copy, route)

    async def _send_cold(self, backend: Backend, rule: Mirror, copy: RemotingCommand) -> None:
        try:
            route = await backend.route(rule.to)
        except RemotingError:
            self._end(rule, Outcome.FAILED)
        else:
            self._send(backend, rule, copy, route)

    def _send(self, backend: Backend, rule: Mirror, copy: RemotingCommand, route: TopicRoute) -> None:
        spec, names = REQUESTS[copy.code], SEND_FIELD_NAMES[copy.code]
        try:
            broker, queue = _queue(route, copy.fields.get(names.broker), copy.fields[names.queue_id])
            copy.fields[names.broker], copy.fields[names.queue_id] = broker, str(queue)
            sending = backend.request(broker, spec, copy, _TIMEOUT, None)
        except RemotingError:
            self._end(rule, Outcome.FAILED)
        else:
            sending.add_done_callback(partial(self._sent, rule))

    def _sent(self, rule: Mirror, sending: Reply) -> None:
        stored = not sending.cancelled() and sending.exception() is None and sending.result().code in STORED
        self._end(rule, Outcome.STORED if stored else Outcome.FAILED)

    def _end(self, rule: Mirror, outcome: Outcome) -> None:
        self.in_flight[rule.name] -= 1
        self._count(rule, outcome)

    def _count(self, rule: Mirror, outcome: Outcome) -> None:
        self.counts[rule.name, outcome.value] += 1


def _copy(rule: Mirror, original: RemotingCommand) -> RemotingCommand | None:
    """The send to the other topic; None where there is nothing to copy."""
    names = SEND_FIELD_NAMES[original.code]
    text, flag = original.fields.get(names.properties, ""), original.fields.get(names.sys_flag, "0")
    body = original.body
    if is_batch(original.code, original.fields):
        marked = _marked_batch(rule, body)
        if marked is None:
            return None
        body = marked
    elif properties.get(text, MIRRORED) is not None or int(flag) & messages.TRANSACTION_MASK:
        return None
    fields = {name: value for name, value in original.fields.items() if name not in _CREDENTIALS}
    fields[names.properties] = properties.append(text, MIRRORED, rule.name)
    fields[names.topic] = rule.to
    copy = commands.request(original.code, fields, body)
    copy.header.update(language=original.language, version=original.version)
    return copy


def _marked_batch(rule: Mirror, body: bytes) -> bytes | None:
    """A batch body each message of which says that it is a copy; None where they are copies already."""
    try:
        entries = messages.decode_batch(body)
        if any(properties.get(entry.properties, MIRRORED) is not None for entry in entries):
            return None
        return messages.encode_batch(
            [
                messages.BatchMessage(entry.flag, entry.body, properties.append(entry.properties, MIRRORED, rule.name))
                for entry in entries
            ]
        )
    except RemotingError:
        return None


def _queue(route: TopicRoute, broker: str | None, queue: str) -> tuple[str, int]:
    """The queue like the original's, so that what was in order stays so. Raises RemotingError where there is none."""
    if not route.writable:
        raise RemotingError(f"topic {route.topic} has no queue to write to")
    number = int(queue) if queue.isdecimal() else 0
    wanted = (broker or "", number)
    return wanted if wanted in route.writable else route.writable[number % len(route.writable)]
