"""Guards: authentication, permissions and the separation of namespaces, as parts of the core and of its frontends."""

from collections.abc import Callable, Mapping, Sequence

from proxy.auth import assembly
from proxy.auth.authority import Authority
from proxy.auth.broker_decisions import BrokerDecisions
from proxy.auth.request_guards import RequestGuards
from proxy.auth.sources.source import Source
from proxy.core.backend import Push
from proxy.core.checks import Check, Tools, first_checks
from proxy.core.client_registry import ClientRegistry
from proxy.core.connections import ConnectionListener
from proxy.core.messaging import Entrance, Handling, Messaging, ReplyGuard
from proxy.core.reply_recipients import ReplyRecipients
from proxy.core.signing import signing_policy
from proxy.settings.cluster import ClientSignatures
from proxy.settings.model import Settings
from proxy.traffic_rules.tenant_guards import TenantGuards


class Guards:
    """The guards that the settings ask for.

    registry: the groups of clients. sources: of users and policies, after those of the settings.

    authority: None while authentication is off. grpc: the guard of the gRPC gateway; None while it is off. signing,
    handlers, reply_guards: as in `Messaging`. connection_listeners: notified of every connection. Raises AuthError.
    """

    def __init__(self, settings: Settings, registry: ClientRegistry, sources: Sequence[Source] = ()) -> None:
        self._settings = settings
        self.authority: Authority | None = assembly.authority(settings.auth, sources, settings.sync.topics)
        authenticates = self.authority is not None
        self.signing = signing_policy(settings, authenticates)
        self.grpc = None if self.authority is None else assembly.grpc_guard(settings.auth, self.authority)
        self._tenants = TenantGuards(settings, authenticates)
        self._requests = None if self.authority is None else RequestGuards(self.authority, settings, registry)
        self.handlers: Mapping[int, Handling] = {}
        self.reply_guards: Mapping[int, ReplyGuard] = {}
        self.connection_listeners: tuple[ConnectionListener, ...] = self._tenants.connection_listeners
        if self._requests is not None:
            self.handlers = self._requests.handlers
            self.reply_guards = self._requests.reply_guards
            self.connection_listeners += (self._requests.replies.on_connection_event,)

    @property
    def replies(self) -> ReplyRecipients | None:
        """The clients that wait for replies; None while authentication is off."""
        return None if self._requests is None else self._requests.replies

    def checks(self, names_by_user: Callable[[], bool]) -> tuple[Check, ...]:
        """Return the core's checks in their order. names_by_user: as in `BrokerDecisions`."""
        tools = Tools(self._settings.permitted_tools).check
        if self.authority is None or self._requests is None:
            return (*first_checks(self._settings), tools, *self._tenants.checks)
        passes = self._settings.cluster.client_signatures is ClientSignatures.PASS
        decides = BrokerDecisions(self.authority, names_by_user) if passes else self.authority
        expects = self._requests.replies.expect
        return (*first_checks(self._settings), decides, tools, expects, *self._tenants.checks)

    def wrap(self, handlers: Mapping[int, Handling]) -> Mapping[int, Handling]:
        """Return the core's handlers with the guards of namespaces before them."""
        return self._tenants.wrap(handlers)

    def wrap_entrance(self, core: Messaging, entrance: Entrance) -> Entrance:
        """Return the entrance of the embedded broker's own listener with the guards before it."""
        entrance = self._tenants.wrap_entrance(core, entrance)
        return entrance if self._requests is None else self._requests.wrap_entrance(core, entrance)

    def check_push(self, push: Push) -> Push:
        """Return a push with the checks of requests to clients."""
        return (self._tenants if self._requests is None else self._requests).check_push(push)
