"""The traffic rules of a replica."""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

import anyio

from protocol_negotiation.peer import Peer
from proxy.core.messaging import Messaging
from proxy.observability.metrics.family import Family, Samples
from proxy.settings.traffic_rules import RulesSettings
from proxy.traffic_rules import rule_metrics
from proxy.traffic_rules.activity_log import ActivityLog
from proxy.traffic_rules.connection_limits import ActiveConnectionLimit, ConnectionLimiter
from proxy.traffic_rules.effects import ActiveRule
from proxy.traffic_rules.evaluator import Evaluator
from proxy.traffic_rules.grpc_resources import ResourceNames
from proxy.traffic_rules.mirroring import MirrorSender
from proxy.traffic_rules.model import Alias, ConnectionLimit, Namespace, RuleFile
from proxy.traffic_rules.name_mapping import NameMapping
from proxy.traffic_rules.reloading import ReloadOutcome, RulesReloader
from proxy.traffic_rules.request_gate import RequestGate
from proxy.traffic_rules.tenancy import ActiveNameRule, name_mapping
from proxy.traffic_rules.user_names import NamesOfUser
from remoting.tasks import every, spawn_quietly

_log = logging.getLogger("gantry.rules")


class RuleEngine:
    """Applies the traffic rules to requests and connections, and reloads them.

    gate: the rules on requests. connections: connection limits. names_by_user: whether namespaces or aliases depend on
    the user. Raises RulesError if the rules file is invalid at the start; later the former rules remain in force.
    """

    def __init__(self, core: Messaging, settings: RulesSettings) -> None:
        self._core = core
        self._settings = settings
        self._file = RuleFile()
        self._name_rules: list[ActiveNameRule] = []
        self.names_by_user = False
        self._activity = ActivityLog()
        self.mirrors = MirrorSender()
        self.gate = RequestGate(core, self.mirrors, self._activity.record_request)
        self.connections = ConnectionLimiter(self._activity.record)
        self._reloader = RulesReloader(settings.file, self.apply)

    def apply(self, file: RuleFile) -> None:
        """Put rules into force. Open connections keep their name mapping."""
        predecessors = {(active.name, active.rule.kind): active for active in self.active}
        self._file = file
        self.gate.evaluator = Evaluator(file, self.gate.evaluator)
        limits = [ActiveConnectionLimit(rule, file.dry_run) for rule in file.rule if isinstance(rule, ConnectionLimit)]
        self._name_rules = [
            ActiveNameRule(rule, file.dry_run) for rule in file.rule if isinstance(rule, Namespace | Alias)
        ]
        self.names_by_user = any(active.rule.match.users for active in self._name_rules)
        connection_rules: list[ActiveRule[Any]] = [*limits, *self._name_rules]
        for active in connection_rules:
            predecessor = predecessors.get((active.name, active.rule.kind))
            if predecessor is not None:
                active.inherit(predecessor)
        self.connections.apply(limits)
        self._core.gate = self.gate.handle if self.gate.evaluator.rules else None
        by_user = [rule.name for rule in file.rule if rule.match.users]
        if by_user and not self._core.settings.auth.enabled:
            _log.warning("rules that match no request, because authentication is off: %s", ", ".join(by_user))

    @property
    def active(self) -> list[ActiveRule[Any]]:
        """The rules in force, in the file's order."""
        by_name: dict[str, ActiveRule[Any]] = {
            active.name: active for active in (*self.gate.evaluator.rules, *self.connections.limits, *self._name_rules)
        }
        return [by_name[rule.name] for rule in self._file.rule]

    async def reload(self) -> ReloadOutcome:
        """Check the rules file and apply it if it has changed."""
        return await self._reloader.reload()

    def reload_soon(self) -> None:
        """Start a check of the rules file, from a signal handler."""
        spawn_quietly(self.reload())

    async def run(self) -> None:
        """Check the rules file periodically, and report rejections and delays, until cancelled."""
        if self._settings.file is None:
            return
        async with anyio.create_task_group() as group:
            for name, work in (("traffic rules", self.reload), ("activity of traffic rules", self._report_if_due)):
                group.start_soon(partial(every, self._settings.reload_interval, work, name=name))

    def _report_if_due(self) -> None:
        self._activity.report_if_due(self.active)

    def report(self) -> None:
        """Log the rejections and delays since the last report."""
        self._activity.report(self.active)

    def names(self, peer: Peer) -> NameMapping | NamesOfUser | None:
        """Return the name mapping of a new remoting connection, or how its user chooses it.

        None if its clients use the brokers' names.
        """
        if self.names_by_user:
            return partial(name_mapping, tuple(self._name_rules), peer, "remoting")
        return name_mapping(self._name_rules, peer, "remoting", None) if self._name_rules else None

    def resource_names(self, peer: Peer, user: str) -> ResourceNames | None:
        """Return the name mapping of a new gRPC client; None if it uses the brokers' names.

        user: "" while authentication is off.
        """
        names = name_mapping(self._name_rules, peer, "grpc", user or None) if self._name_rules else None
        return None if names is None else ResourceNames(names)

    def read_metrics(self) -> Iterable[tuple[Family, Samples]]:
        """Return the metrics of the rules."""
        return rule_metrics.read(self.active, self.mirrors.counts, self._reloader)
