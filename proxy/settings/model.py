"""All settings: the tables of the other modules and the settings outside any table."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from proxy.settings.admin import AdminSettings
from proxy.settings.auth import AuthSettings
from proxy.settings.cluster import ClusterSettings
from proxy.settings.embedded import EmbeddedSettings
from proxy.settings.env_source import EnvironmentSource
from proxy.settings.field_types import Address
from proxy.settings.file_source import FileSource
from proxy.settings.grpc import GrpcSettings
from proxy.settings.limits import LimitSettings
from proxy.settings.listen import Listeners, ListenSettings
from proxy.settings.logs import LogSettings
from proxy.settings.metrics import MetricsSettings
from proxy.settings.replication import SyncSettings
from proxy.settings.tls import ClusterTlsSettings, TlsSettings
from proxy.settings.tracing import TraceSettings
from proxy.settings.traffic_records import TrafficSettings
from proxy.settings.traffic_rules import RulesSettings


class Settings(BaseSettings):
    """All settings, immutable. `proxy.settings.loading` reads them from their sources."""

    model_config = SettingsConfigDict(
        env_prefix="GANTRY_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    listen: Listeners = Field(
        default=[ListenSettings(address=":8080")], min_length=1, description="listeners, each host:port or a table"
    )
    replica: str = Field("", description="name of this replica in shared memberships; default: the host name")
    tls: TlsSettings = TlsSettings()
    auth: AuthSettings = AuthSettings()
    cluster: ClusterSettings = ClusterSettings()
    cluster_tls: ClusterTlsSettings = ClusterTlsSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    limits: LimitSettings = LimitSettings()
    grpc: GrpcSettings = GrpcSettings()
    sync: SyncSettings = SyncSettings()
    rules: RulesSettings = RulesSettings()
    traffic: TrafficSettings = TrafficSettings()
    admin: AdminSettings = AdminSettings()
    client_expiry: float = Field(
        90.0, ge=10, lt=120, description="seconds without a heartbeat after which a client has left its groups"
    )
    born_host: bool = Field(
        True, description="set the property __BORNHOST of unsigned messages to the producer's address"
    )
    drain_delay: float = Field(
        0.0, ge=0, description="seconds at shutdown in which health checks fail while all requests are still served"
    )
    drain_timeout: float = Field(10.0, ge=0, description="timeout for in-flight requests at shutdown in seconds")
    tools: Literal["all", "read", "none"] | None = Field(
        None,
        description="permitted requests of operators' tools about topics, groups and clients; default: `all` on the "
        "embedded broker, `read` before a cluster",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="minimum level of log lines")
    logs: LogSettings = LogSettings()
    tracing: TraceSettings = TraceSettings()
    metrics_listen: Address | None = Field(
        None, description="host:port of the Prometheus endpoint; default: no endpoint"
    )
    metrics: MetricsSettings = MetricsSettings()
    workers: int = Field(1, ge=1, le=256, description="processes that share the listeners")
    worker_timeout: float = Field(
        30.0,
        ge=0,
        description="seconds without an answer to the parent process after which one of several workers is killed and"
        " restarted; 0: never",
    )

    @property
    def permitted_tools(self) -> str:
        """The effective value of `tools`: only tools connected here can create topics on an embedded broker."""
        return self.tools or ("read" if self.embedded.directory is None else "all")

    @property
    def own_topics(self) -> frozenset[str]:
        """The topics that Gantry itself writes and reads."""
        audit = () if self.auth.audit_topic is None else (self.auth.audit_topic,)
        return self.sync.topics.union((self.grpc.trace_topic, *audit))

    @property
    def has_embedded_broker(self) -> bool:
        """Whether the broker is embedded, here or in the first of several workers, whose socket is then the cluster."""
        return self.embedded.directory is not None or any(
            address.startswith("unix:") for address in self.cluster.namesrv
        )

    @property
    def shared(self) -> bool:
        """Whether processes share state; one with an embedded broker that no other can reach is alone."""
        alone = self.embedded.directory is not None and self.embedded.listen is None and self.workers == 1
        return self.sync.enabled and not alone

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, EnvironmentSource(settings_cls), FileSource(settings_cls))
