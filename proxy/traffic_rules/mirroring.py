"""Mirroring: copies of stored messages, sent to another topic without delaying the originals."""

from collections import Counter
from enum import StrEnum
from functools import partial

from proxy.core.backend import Backend
from proxy.traffic_rules.decision import MirrorCopy
from proxy.traffic_rules.model import Mirror
from remoting import command as commands
from remoting import messages, properties
from remoting.batch_flag import is_batch
from remoting.codes import STORED
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.outcomes import Reply
from remoting.requests import REQUESTS, SEND_FIELD_NAMES
from remoting.routes import TopicRoute
from remoting.signature import SIGNATURE_FIELDS
from remoting.tasks import spawn_quietly

# Property of every copy, with the rule's name. Messages that have it are not copied again.
MIRRORED = "GANTRY_MIRROR"
# Seconds that a broker has to store a copy.
_TIMEOUT = 3.0


class Outcome(StrEnum):
    """Outcome of a copy; the values are metric labels."""

    STORED = "stored"
    FAILED = "failed"
    DROPPED = "dropped"  # over the limit of in-flight copies
    SKIPPED = "skipped"  # the message is a copy itself, or half of a transaction


class MirrorSender:
    """Sends copies. counts: number of copies by rule and outcome; in_flight: by rule."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.in_flight: Counter[str] = Counter()

    def send(self, backend: Backend, mirror: MirrorCopy, original: RemotingCommand) -> None:
        """Send a copy of a send that was served. Never raises."""
        rule = mirror.rule
        copy = _copy(rule, original)
        if copy is None:
            self._count(rule, Outcome.SKIPPED)
        elif self.in_flight[rule.name] >= rule.in_flight:
            self._count(rule, Outcome.DROPPED)
        else:
            mirror.on_send()
            self.in_flight[rule.name] += 1
            route = backend.cached_route(rule.to)
            if route is None:
                spawn_quietly(self._fetch_route_and_send(backend, rule, copy))
            else:
                self._send(backend, rule, copy, route)

    async def _fetch_route_and_send(self, backend: Backend, rule: Mirror, copy: RemotingCommand) -> None:
        try:
            route = await backend.route(rule.to)
        except RemotingError:
            self._finish(rule, Outcome.FAILED)
        else:
            self._send(backend, rule, copy, route)

    def _send(self, backend: Backend, rule: Mirror, copy: RemotingCommand, route: TopicRoute) -> None:
        spec, names = REQUESTS[copy.code], SEND_FIELD_NAMES[copy.code]
        try:
            broker, queue = _select_queue(route, copy.fields.get(names.broker), copy.fields[names.queue_id])
            copy.fields[names.broker], copy.fields[names.queue_id] = broker, str(queue)
            reply = backend.request(broker, spec, copy, _TIMEOUT, None)
        except RemotingError:
            self._finish(rule, Outcome.FAILED)
        else:
            reply.add_done_callback(partial(self._on_reply, rule))

    def _on_reply(self, rule: Mirror, reply: Reply) -> None:
        stored = not reply.cancelled() and reply.exception() is None and reply.result().code in STORED
        self._finish(rule, Outcome.STORED if stored else Outcome.FAILED)

    def _finish(self, rule: Mirror, outcome: Outcome) -> None:
        self.in_flight[rule.name] -= 1
        self._count(rule, outcome)

    def _count(self, rule: Mirror, outcome: Outcome) -> None:
        self.counts[rule.name, outcome.value] += 1


def _copy(rule: Mirror, original: RemotingCommand) -> RemotingCommand | None:
    """Return the send to the other topic; None for a copy or a half message."""
    names = SEND_FIELD_NAMES[original.code]
    text, flag = original.fields.get(names.properties, ""), original.fields.get(names.sys_flag, "0")
    body = original.body
    if is_batch(original.code, original.fields):
        marked = _mark_batch(rule, body)
        if marked is None:
            return None
        body = marked
    elif properties.get(text, MIRRORED) is not None or int(flag) & messages.TRANSACTION_MASK:
        return None
    # The signature is the original request's only.
    fields = {name: value for name, value in original.fields.items() if name not in SIGNATURE_FIELDS}
    fields[names.properties] = properties.append(text, MIRRORED, rule.name)
    fields[names.topic] = rule.to
    copy = commands.request(original.code, fields, body)
    copy.header.update(language=original.language, version=original.version)
    return copy


def _mark_batch(rule: Mirror, body: bytes) -> bytes | None:
    """Return a batch body with every message marked as a copy; None if one is a copy already or it is unreadable."""
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


def _select_queue(route: TopicRoute, broker: str | None, queue: str) -> tuple[str, int]:
    """Return the broker and queue that correspond to the original's, so that the order of messages is kept.

    Raises RemotingError if the topic has no writable queue.
    """
    if not route.writable:
        raise RemotingError(f"topic {route.topic} has no writable queue")
    number = int(queue) if queue.isdecimal() else 0
    original = (broker or "", number)
    return original if original in route.writable else route.writable[number % len(route.writable)]
