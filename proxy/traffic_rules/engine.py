"""The rules in force at this replica: what they do to requests and connections, and their reloading."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import anyio
import anyio.to_thread

from protocol_negotiation.connection import Handler as Accept
from protocol_negotiation.detect import Protocol
from protocol_negotiation.peer import Peer
from proxy.core.channel import ChannelProtocol
from proxy.core.connections import Connection, ConnectionEvent
from proxy.core.context import Context
from proxy.core.events.request import count
from proxy.core.messaging import Messaging, Reply, Serve, as_future
from proxy.observability.metrics import Metrics
from proxy.observability.metrics.family import Family, Kind, Merge, Samples
from proxy.settings.traffic_rules import RulesSettings
from proxy.traffic_rules import deferral
from proxy.traffic_rules.decision import Decision, Refusal
from proxy.traffic_rules.effects import Active, Counts
from proxy.traffic_rules.errors import FlowControlled, UnderMaintenance
from proxy.traffic_rules.evaluator import Evaluator
from proxy.traffic_rules.grpc_resources import ResourceNames
from proxy.traffic_rules.limits import ActiveConnections
from proxy.traffic_rules.matching import LONGEST
from proxy.traffic_rules.mirroring import Mirrors
from proxy.traffic_rules.model import Alias, Connections, Namespace, RuleFile, RulesError, parse
from proxy.traffic_rules.name_mapping import Names
from proxy.traffic_rules.rejection import FAREWELLS, GrpcFarewell, RemotingFarewell
from proxy.traffic_rules.request_attributes import ConnectionAttributes, RequestAttributes
from remoting import command as commands
from remoting.codes import STORED, RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, NotPermitted
from remoting.messages import PullSysFlag
from remoting.tasks import spawn_quietly

_log = logging.getLogger("gantry.rules")

Handling = Awaitable[RemotingCommand] | None

# Seconds that a receive is held which the client would not have wait at all, and one whose fields we may not change:
# the broker's own wait is added to that.
_BRIEF = 1.0
_SIGNED = 5.0
# However long the client would wait, which may be for ever: it is asked for again after that.
_LONGEST = 60.0
# Seconds between lines in the log about what rules did.
_REPORT = 10.0

_LABELS = ("rule", "kind")
MATCHED = Family("gantry_rule_matched", Kind.COUNTER, "Requests, or connections, that a rule was about.", _LABELS)
ENFORCED = Family(
    "gantry_rule_enforced",
    Kind.COUNTER,
    "Of these, those that a rule refused, held, allowed, delayed, copied or renamed.",
    _LABELS,
)
DRY_RUN = Family(
    "gantry_rule_dry_run",
    Kind.COUNTER,
    "Of these, those to which a rule would have done so, but for its dry run.",
    _LABELS,
)
MIRRORED = Family("gantry_rule_mirrored", Kind.COUNTER, "Copies of messages, by outcome.", ("rule", "outcome"))
RULES = Family("gantry_rules", Kind.GAUGE, "Rules in force.", (), Merge.MAX)
OUTDATED = Family(
    "gantry_rules_outdated",
    Kind.GAUGE,
    "1 where the rules file is not usable, and former rules are in force.",
    (),
    Merge.MAX,
)
RELOADS = Family("gantry_rules_reloads", Kind.COUNTER, "Changed rules files that were loaded, or not.", ("outcome",))


class Reload(StrEnum):
    """What became of a look at the file; the values are metric labels."""

    UNCHANGED = "unchanged"
    LOADED = "loaded"
    FAILED = "failed"


class ActiveName(Active[Any]):
    """A rule about names, in force."""


def _no_chance() -> float:
    """For rules that leave nothing to chance."""
    return 0.0


@dataclass(frozen=True, slots=True)
class _File:
    """The file as it was read. stamp: changes with it; rules: or why there are none."""

    stamp: object
    rules: RuleFile | str


class Rules:
    """All that rules do. Raises RulesError where there is a file and it is wrong; later the former rules stay.

    maintenance_failures: requests that were refused because of maintenance.
    """

    def __init__(self, core: Messaging, settings: RulesSettings, metrics: Metrics) -> None:
        self._core = core
        self._settings = settings
        self._stamp: object = None
        # Why the file is not in force as it is.
        self.error: str | None = None
        self.file = RuleFile()
        self.reloads: Counter[str] = Counter()
        self.mirrors = Mirrors()
        self.maintenance_failures = 0
        self._judge = Evaluator(self.file)
        self._connections: list[ActiveConnections] = []
        self._names: list[ActiveName] = []
        self._open: dict[Connection, ConnectionAttributes] = {}
        self._turned_away: WeakSet[RemotingFarewell | GrpcFarewell] = WeakSet()
        self._reading = asyncio.Lock()
        self._reported: dict[str, int] = {}
        self._last: dict[str, str] = {}
        if settings.file is not None:
            read = _read(settings.file)
            assert read is not None
            if isinstance(read.rules, str):
                raise RulesError(f"{settings.file}: {read.rules}")
            self._stamp = read.stamp
            self.apply(read.rules)
        metrics.add(self._read_metrics)
        metrics.envoy.maintenance = lambda: self.maintenance_failures

    # The file.

    def apply(self, file: RuleFile) -> None:
        """Let these rules be in force. Connections keep the names that they have."""
        former = {(active.name, active.rule.kind): active for active in self.active}
        self.file = file
        self._judge = Evaluator(file, self._judge)
        self._connections = [
            ActiveConnections(rule, file.dry_run, _no_chance) for rule in file.rule if isinstance(rule, Connections)
        ]
        self._names = [
            ActiveName(rule, file.dry_run, _no_chance) for rule in file.rule if isinstance(rule, Namespace | Alias)
        ]
        for active in (*self._connections, *self._names):
            known = former.get((active.name, active.rule.kind))
            if known is not None:
                # It goes on counting.
                active.inherit(known)
        for subject in self._open.values():
            for limit in self._connections:
                limit.opened(subject)
        self._core.gate = self.gate if self._judge.rules else None

    @property
    def active(self) -> list[Active[Any]]:
        """Every rule in force, in the file's order."""
        every: dict[str, Active[Any]] = {
            active.name: active for active in (*self._judge.rules, *self._connections, *self._names)
        }
        return [every[rule.name] for rule in self.file.rule]

    async def reload(self) -> Reload:
        """Look at the file, and take it if it has changed and is right."""
        file = self._settings.file
        if file is None:
            return Reload.UNCHANGED
        async with self._reading:
            read = await anyio.to_thread.run_sync(_read, file, self._stamp)
            if read is None:
                return Reload.UNCHANGED
            self._stamp = read.stamp
            if isinstance(read.rules, str):
                self.error = read.rules
                outcome = Reload.FAILED
                _log.error("%s is not usable, the former rules stay in force: %s", file, read.rules)
            else:
                self.error = None
                outcome = Reload.LOADED
                self.apply(read.rules)
                _log.info("%d rules of %s are in force", len(read.rules.rule), file)
            self.reloads[outcome.value] += 1
            return outcome

    def reload_soon(self) -> None:
        """Look at the file now: for a signal's handler."""
        spawn_quietly(self.reload())

    async def run(self) -> None:
        """Keep up with the file, until cancelled; where there is none, there is nothing to do."""
        if self._settings.file is None:
            return
        reported = time.monotonic()
        while True:
            await anyio.sleep(self._settings.reload_interval)
            try:
                await self.reload()
            except Exception:
                _log.exception("the rules file could not be looked at")
            if time.monotonic() - reported >= _REPORT:
                reported = time.monotonic()
                self.report()

    def report(self) -> None:
        """Log, one line for each rule, what it refused or held since the last report."""
        for active in self.active:
            done = active.counts.enforced
            news, self._reported[active.name] = done - self._reported.get(active.name, 0), done
            last = self._last.pop(active.name, None)
            if news > 0 and last is not None:
                _log.warning(
                    "rule %s (%s): %d since the last report, at last %s", active.name, active.rule.kind, news, last
                )

    # Requests.

    def gate(self, context: Context, serve: Serve) -> Handling:
        """Serve a request as the rules say. Raises RemotingError."""
        judge = self._judge
        if not judge.concerns(context.code):
            return serve(context)
        verdict = judge.judge(RequestAttributes(context), context.started)
        if verdict is None or verdict.unconditional:
            return serve(context)
        if verdict.refusal is not None:
            return self._refuse(context, verdict, verdict.refusal)
        if not verdict.wait:
            return self._serve(context, verdict, serve)
        if verdict.waits_for:
            return self._hold(context, verdict, serve)
        return deferral.later(verdict.wait, partial(self._serve, context, verdict, serve), commands.success())

    def _refuse(self, context: Context, verdict: Decision, refusal: Refusal) -> Handling:
        self._note(refusal.rule, context)
        if refusal.kind == "fault":
            answer = commands.response(refusal.code, remark=refusal.text)
            if verdict.wait:
                return deferral.later(verdict.wait, partial(_resolved, answer), answer)
            return _resolved(answer)
        if refusal.kind == "limit":
            raise FlowControlled(refusal.text)
        if refusal.kind == "maintenance":
            self.maintenance_failures += 1
            raise UnderMaintenance(refusal.text)
        raise NotPermitted(refusal.text)

    def _serve(self, context: Context, verdict: Decision, serve: Serve) -> Handling:
        """Serve it, and see to what comes after its answer."""
        if verdict.wait and context.channel.closed:
            raise ConnectionLost("the client is gone")
        mirrors = verdict.mirrors
        # A forwarded command is overwritten on its way, but for its fields and body.
        original = context.command.copy() if mirrors else None
        handling = serve(context)
        if not mirrors and not verdict.metered:
            return handling
        if handling is None:
            self._answered(verdict, original, None)
            return None
        reply = as_future(handling)
        reply.add_done_callback(partial(self._answered, verdict, original))
        return reply

    def _answered(self, verdict: Decision, original: RemotingCommand | None, reply: Reply | None) -> None:
        if reply is not None:
            if reply.cancelled() or reply.exception() is not None:
                return
            answer = reply.result()
            if answer.code not in STORED:
                return
            if verdict.metered:
                verdict.answered(count(answer.body), len(answer.body), time.monotonic())
        if original is not None:
            for mirror in verdict.mirrors:
                self.mirrors.send(self._core.backend, mirror, original)

    def _hold(self, context: Context, verdict: Decision, serve: Serve) -> Handling:
        """A receive waits, within the time that its client gives it; then there is nothing for it."""
        self._note(verdict.waits_for, context)
        most, signed = _patience(context), "Signature" in context.fields
        if verdict.wait > most:
            return deferral.later(most, partial(_nothing, context, verdict.waits_for), commands.success())

        def release() -> Handling:
            poll = context.known.poll
            if poll is not None and not signed:
                # What it has waited already.
                left = max(0.0, int(context.fields[poll]) / 1000 - verdict.wait)
                context.fields[poll] = str(int(left * 1000))
            verdict.served(time.monotonic())
            return self._serve(context, verdict, serve)

        return deferral.later(verdict.wait, release, commands.success())

    def _note(self, rule: str, context: Context) -> None:
        """Whom a rule was applied to at last, for the log."""
        self._last[rule] = (
            f"{context.known.name} of {_said(context.channel.identity.client_id or 'a client')} at "
            f"{context.channel.peer.address}, topic {_said(context.topic)}, group {_said(context.group)}"
        )

    # Connections.

    def admitting(self, protocol: Protocol, accept: Accept) -> Accept:
        """Accept connections of a protocol where rules permit."""
        name: ChannelProtocol = "remoting" if protocol is Protocol.REMOTING else "grpc"

        def admit(peer: Peer) -> asyncio.BaseProtocol:
            if self._connections:
                subject = ConnectionAttributes(peer, name)
                for limit in self._connections:
                    text = limit.refuses(subject)
                    if text is not None:
                        self._last[limit.name] = f"{name} from {peer.address}"
                        farewell = FAREWELLS[protocol](text)
                        self._turned_away.add(farewell)
                        return farewell
            return accept(peer)

        return admit

    def close(self) -> None:
        """Let go of connections that were turned away."""
        for farewell in self._turned_away:
            farewell.end()

    def connection(self, event: ConnectionEvent) -> None:
        """Connection listener."""
        if event.cause is None:
            subject = self._open[event.connection] = ConnectionAttributes(event.peer, event.protocol)
            for limit in self._connections:
                limit.opened(subject)
        else:
            gone = self._open.pop(event.connection, None)
            if gone is not None:
                for limit in self._connections:
                    limit.closed(gone)

    # Names.

    def names(self, peer: Peer, protocol: ChannelProtocol) -> Names | None:
        """The names of a new connection's clients; None: the brokers' own."""
        if not self._names:
            return None
        subject = ConnectionAttributes(peer, protocol)
        namespace = ""
        topics: dict[str, str] = {}
        for active in self._names:
            if not active.matches(subject):
                continue
            active.counts.matched += 1
            rule = active.rule
            if isinstance(rule, Namespace):
                if not namespace and active.hit():
                    namespace = rule.namespace
            elif rule.topic not in topics and rule.real not in topics.values() and active.hit():
                topics[rule.topic] = rule.real
        return Names(namespace, tuple(topics.items())) if namespace or topics else None

    def resource_names(self, peer: Peer) -> ResourceNames | None:
        """The same for a gRPC client."""
        names = self.names(peer, "grpc")
        return None if names is None else ResourceNames(names)

    # Metrics.

    def _read_metrics(self) -> Iterable[tuple[Family, Samples]]:
        active = self.active
        for family, read in _COUNTED:
            yield family, {(one.name, one.rule.kind): read(one.counts) for one in active}
        yield MIRRORED, {(rule, outcome): copies for (rule, outcome), copies in self.mirrors.counts.items()}
        yield RULES, {(): len(active)}
        yield OUTDATED, {(): int(self.error is not None)}
        yield RELOADS, {(outcome.value,): self.reloads[outcome.value] for outcome in (Reload.LOADED, Reload.FAILED)}


_COUNTED: tuple[tuple[Family, Callable[[Counts], int]], ...] = (
    (MATCHED, lambda counts: counts.matched),
    (ENFORCED, lambda counts: counts.enforced),
    (DRY_RUN, lambda counts: counts.dry_run),
)


def _read(file: Path, known: object = None) -> _File | None:
    """The file's rules, or why there are none; None where it is still as `known`, a stamp, has it."""
    stamp: object
    try:
        status = file.stat()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        text = file.read_text(encoding="utf-8") if stamp != known else ""
    except (OSError, UnicodeDecodeError) as error:
        stamp = str(error)
        return None if stamp == known else _File(stamp, stamp)
    if stamp == known:
        return None
    try:
        return _File(stamp, parse(text))
    except RulesError as error:
        return _File(stamp, str(error))


def _said(name: str | None) -> str:
    """A name in a line of the log, whatever a client has put into it."""
    name = (name or "-")[:LONGEST]
    return name if name.isprintable() else repr(name)


def _patience(context: Context) -> float:
    """Seconds that a receive may be held."""
    fields, poll = context.fields, context.known.poll
    wait = context.command.integer(poll) / 1000 if poll is not None else 0.0
    if context.code in _PULLS and not context.command.integer("sysFlag") & PullSysFlag.SUSPEND:
        wait = 0.0
    return min(max(wait, _BRIEF), _SIGNED if "Signature" in fields else _LONGEST)


_PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})


def _nothing(context: Context, rule: str) -> Handling:
    """A receive has waited as long as it may: there is nothing for it now.

    An error would have remoting clients ask again within 20 ms. Raises FlowControlled for a gRPC client, which is told
    so by its gateway after a pause.
    """
    text = f"the limit is used up (rule {rule})"
    if context.channel.protocol == "grpc":
        raise FlowControlled(text)
    if context.code not in _PULLS:
        fields = dict.fromkeys(("popTime", "invisibleTime", "reviveQid", "restNum"), "0")
        # A peek is no poll.
        code = ResponseCode.POLLING_TIMEOUT if context.known.poll is not None else ResponseCode.PULL_NOT_FOUND
        return _resolved(commands.response(code, fields, remark=text))
    offset = context.fields["queueOffset"]
    fields = {"nextBeginOffset": offset, "minOffset": "0", "maxOffset": offset, "suggestWhichBrokerId": "0"}
    return _resolved(commands.response(ResponseCode.PULL_NOT_FOUND, fields, remark=text))


def _resolved(answer: RemotingCommand) -> Reply:
    reply: Reply = asyncio.get_running_loop().create_future()
    reply.set_result(answer)
    return reply
