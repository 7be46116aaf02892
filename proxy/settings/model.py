"""Settings: typed, checked at start, each with its default; from a TOML file, the environment and flags.

Later sources win: defaults, then the file (`--config FILE`), then the environment (`GANTRY_…`,
`__` between levels: `GANTRY_CLUSTER__NAMESRV`), then flags.
"""

import ipaddress
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from grpc_gateway.http2.limits import Limits, Upkeep
from grpc_gateway.options import Options
from grpc_gateway.server import ServerOptions
from protocol_negotiation.advertised_address import Advertise, AdvertiseRule, resolve
from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls import ClientAuth, TlsFiles, TlsMode
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store.group_commit import SyncPolicy
from proxy.embedded.store.options import StoreOptions
from proxy.observability.logs import LogSettings
from proxy.settings.admin import AdminSettings
from proxy.settings.metrics import MetricsSettings
from proxy.settings.tracing import TraceSettings
from proxy.settings.traffic_records import TrafficSettings
from proxy.settings.traffic_rules import RulesSettings

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ConfigError(Exception):
    """The configuration is wrong; the message names each key and what is the matter with it."""


def _split(value: object) -> object:
    """Lists may be written as one text, separated by `;` or `,`, as RocketMQ's own tools take them."""
    if isinstance(value, str):
        return [part.strip() for part in value.replace(",", ";").split(";") if part.strip()]
    return value


def _address(text: str) -> str:
    HostPort.parse(text)
    return text


def _remote(text: str) -> str:
    address = HostPort.parse(text)
    if address.is_unix or not address.host or not address.port:
        raise ValueError(f"needs a host and a port: {text!r}")
    return text


def _bindable(text: str) -> str:
    address = HostPort.parse(text)
    if address.is_unix or not address.port:
        raise ValueError(f"needs a port of its own: {text!r}")
    return text


def _dialled(text: str) -> str:
    if HostPort.parse(_remote(text)).ip is None:
        raise ValueError(f"needs an IP address and a port: {text!r}")
    return text


def _told(text: str) -> str:
    resolve(text, 0)
    return text


# In the environment these are texts and not JSON.
Addresses = Annotated[list[Annotated[str, AfterValidator(_remote)]], BeforeValidator(_split), NoDecode]
Networks = Annotated[list[Network], BeforeValidator(_split), NoDecode]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AdvertiseRuleSettings(_Table):
    """Clients from `networks` are told `address`."""

    networks: Networks
    address: Annotated[str, AfterValidator(_told)]


class ListenSettings(_Table):
    """One listener; the short form is just its address."""

    address: str = Field(description="host:port, :port for every interface, [::1]:port, or unix:/path")
    name: str = Field("", description="as it appears in logs and metrics; default: the address")
    advertise: Annotated[str, AfterValidator(_told)] | None = Field(
        None, description="host:port (or host) which clients are told; default: what the client dialled"
    )
    advertise_rules: list[AdvertiseRuleSettings] = Field(
        [], description="what clients of certain networks are told instead"
    )
    broker: str | None = Field(
        None, description="requests on this listener that name no broker are for this one (clients before 4.9.5)"
    )
    tls: bool = Field(True, description="false: this listener never speaks TLS, whatever tls.mode says")
    trusted_proxies: Networks = Field([], description="networks whose PROXY protocol headers are believed")
    max_connections: int = Field(50_000, gt=0, description="further connections are closed at once")

    @field_validator("address")
    @classmethod
    def _valid_address(cls, text: str) -> str:
        return text if text.startswith("unix:") else _address(text)

    @property
    def advertised(self) -> Advertise:
        """As the negotiation layer takes it."""
        rules = tuple(AdvertiseRule(tuple(rule.networks), rule.address) for rule in self.advertise_rules)
        return Advertise(self.advertise, rules)


def _listeners(value: object) -> object:
    value = _split(value)
    if isinstance(value, list):
        return [{"address": item} if isinstance(item, str) else item for item in value]
    return value


class TlsSettings(_Table):
    """TLS on the listeners."""

    mode: TlsMode = Field(TlsMode.PERMISSIVE, description="disabled, permissive (both) or enforcing (nothing else)")
    certificate: Path | None = Field(
        None, description="PEM file with the certificate chain; without it there is no TLS"
    )
    key: Path | None = Field(None, description="PEM file with the private key")
    key_password: str | None = Field(None, repr=False, description="password of the key file")
    client_ca: Path | None = Field(None, description="PEM file of CAs that client certificates are checked against")
    client_auth: ClientAuth = Field(ClientAuth.NONE, description="whether clients need a certificate")
    reload_interval: float = Field(10.0, gt=0, description="seconds between looks at the files for changes")

    @model_validator(mode="after")
    def _complete(self) -> "TlsSettings":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: set both or neither")
        if self.mode is TlsMode.ENFORCING and self.certificate is None:
            raise ValueError("mode is enforcing, but there is no certificate")
        if self.client_auth is not ClientAuth.NONE and self.client_ca is None:
            raise ValueError("client_auth needs client_ca")
        return self

    @property
    def files(self) -> TlsFiles | None:
        """As the negotiation layer takes them; None without TLS."""
        if self.certificate is None or self.key is None or self.mode is TlsMode.DISABLED:
            return None
        return TlsFiles(self.certificate, self.key, self.key_password, self.client_ca, self.client_auth)


class ClusterSettings(_Table):
    """The RocketMQ cluster behind the proxy."""

    namesrv: Addresses = Field([], description="name servers, host:port, separated by ;")
    connections_per_broker: int = Field(2, ge=1, le=64, description="connections for requests to each broker")
    connect_timeout: float = Field(3.0, gt=0, description="seconds to reach a name server or broker")
    request_timeout: float = Field(10.0, gt=0, description="seconds for a broker's answer, long polls not counted")
    route_refresh: float = Field(10.0, gt=0, description="seconds between refreshes of routes and brokers")
    route_idle: float = Field(300.0, gt=0, description="seconds without use after which a route is forgotten")


# A queue's number must fit what clients keep of it, and a topic of many is slow for each of them.
_MAX_QUEUES = 1024


class EmbeddedSettings(_Table):
    """The broker in this process, where there is one. Defaults are RocketMQ's, where it has them."""

    directory: Path | None = Field(None, description="where the embedded broker keeps everything; none: no such broker")
    listen: Annotated[str, AfterValidator(_bindable)] | None = Field(
        None, description="host:port of name server and broker in one, for clients and tools that go round the proxy"
    )
    advertise: Annotated[str, AfterValidator(_dialled)] | None = Field(
        None, description="ip:port which routes there and message ids name; default: what is listened on"
    )
    name: str = Field("broker-a", pattern=r"^[A-Za-z0-9_.-]+$", description="the broker's name")
    cluster: str = Field("DefaultCluster", pattern=r"^[A-Za-z0-9_.-]+$", description="its cluster's name")
    sync: SyncPolicy = Field(
        SyncPolicy.ALWAYS, description="a send is answered when it is on the disk (always), or before (interval, os)"
    )
    sync_interval: float = Field(1.0, ge=1, description="seconds between syncs where sync is interval")
    segment_size: int = Field(256 * 2**20, ge=2**20, le=2**31, description="size of a file of the log in bytes")
    reserve: int = Field(
        16 * 2**20, ge=0, description="bytes of disk kept for acknowledgements and offsets when it is full"
    )
    retention_size: int | None = Field(
        None, ge=2**20, description="bytes of log beyond which the oldest messages go; default: no bound"
    )
    retention_time: float = Field(259_200.0, ge=0, description="seconds for which messages are kept; 0: for ever")
    rebuild: bool = Field(
        False, description="start without topics, groups and offsets where the file that held them is lost"
    )
    auto_create_topics: bool = Field(True, description="a first message of a remoting client makes its topic")
    auto_create_groups: bool = Field(True, description="a first consumer makes its group")
    queues: int = Field(8, ge=1, le=_MAX_QUEUES, description="queues of topics that are made by their first message")
    max_message: int = Field(4 * 2**20, ge=1024, le=2**23, description="largest message in bytes")
    max_delay: float = Field(259_200.0, gt=0, description="seconds that a delivery may be set ahead")
    transaction_timeout: float = Field(6.0, gt=0, description="age in seconds at which a transaction is asked about")
    transaction_interval: float = Field(30.0, gt=0, description="seconds until it is asked about again")
    transaction_checks: int = Field(15, ge=1, description="how often it is asked about")

    def store_options(self) -> StoreOptions:
        """As the store takes them."""
        return StoreOptions(
            sync=self.sync,
            sync_interval=_milliseconds(self.sync_interval),
            segment_size=self.segment_size,
            reserve=self.reserve,
            retention_size=self.retention_size,
            retention_time=_milliseconds(self.retention_time) or None,
            rebuild=self.rebuild,
        )

    def broker_settings(self, address: HostPort) -> BrokerSettings:
        """As the broker takes them; `address` is what it says that it has."""
        return BrokerSettings(
            name=self.name,
            cluster=self.cluster,
            host=address.host,
            port=address.port,
            auto_create_topics=self.auto_create_topics,
            auto_create_groups=self.auto_create_groups,
            default_queues=self.queues,
            max_message_size=self.max_message,
            longest_delay=_milliseconds(self.max_delay),
            transaction_timeout=_milliseconds(self.transaction_timeout),
            transaction_interval=_milliseconds(self.transaction_interval),
            transaction_checks=self.transaction_checks,
        )


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


class LimitSettings(_Table):
    """Bounds that keep one client from harming the others."""

    negotiation_timeout: float = Field(10.0, gt=0, description="seconds for the first bytes and the TLS handshake")
    idle_timeout: float = Field(120.0, gt=0, description="seconds without a byte after which a client is closed")
    requests: int = Field(64, gt=0, description="unanswered requests of a connection at which it is read no further")
    waiting: int = Field(4096, gt=0, description="the same for requests that wait, as long polls do")
    request_bytes: int = Field(32 * 2**20, gt=0, description="the same in bytes of their bodies")
    buffer: int = Field(
        2**20, gt=0, description="unread answers of a connection in bytes at which it is read no further"
    )
    hard_buffer: int = Field(128 * 2**20, gt=0, description="unread answers in bytes at which the connection is closed")
    frame: int = Field(16 * 2**20, ge=4096, le=2**24, description="largest remoting frame in bytes")
    total_bytes: int = Field(
        2**30, gt=0, description="bodies of all unanswered requests; beyond, SYSTEM_BUSY is answered"
    )


class GrpcSettings(_Table):
    """gRPC: clients of the v2 API. Bounds are what the official proxy has, where it has them."""

    transport: Literal["inprocess", "grpcio"] = Field(
        "inprocess", description="inprocess: our own HTTP/2; grpcio: its server, behind a relay"
    )
    health: bool = Field(True, description="serve grpc.health.v1: overall, and the messaging service")
    reflection: bool = Field(False, description="serve server reflection: tools can ask for the API's description")
    metric_collector: Annotated[str, AfterValidator(_remote)] | None = Field(
        None, description="host:port to which clients are told to send their metrics (OTLP); default: they send none"
    )
    max_message: int = Field(16 * 2**20, ge=2**20, description="largest gRPC message in bytes, either way")
    max_streams: int = Field(4096, gt=0, description="calls at a time on one connection")
    clients_per_connection: int = Field(
        256, gt=0, description="client ids on one connection; more where a proxy in front of this one joins connections"
    )
    max_header: int = Field(16 * 2**10, ge=4096, description="largest list of header fields in bytes")
    ping_after: float = Field(
        120.0, ge=0, description="seconds of silence until a client is asked for a sign of life; 0: never"
    )
    ping_timeout: float = Field(20.0, gt=0, description="seconds that it then has")
    min_ping_interval: float = Field(
        10.0, ge=0, description="seconds between a client's own pings; more of them are taken for abuse"
    )
    max_age: float | None = Field(
        None, gt=0, description="seconds after which a connection is sent elsewhere; default: never"
    )
    max_body: int = Field(4 * 2**20, gt=0, description="largest message body in bytes")
    max_properties: int = Field(16 * 2**10, gt=0, le=30_000, description="properties of a message in bytes")
    max_property_count: int = Field(128, gt=0, description="properties of a message")
    max_delay: float = Field(86_400.0, gt=0, description="seconds that a delivery may be set ahead")
    recovery_limit: float = Field(
        3_600.0, gt=0, description="longest time in seconds until an open transaction is asked about"
    )
    validate_message_type: bool = Field(True, description="refuse messages that are not of their topic's type")
    send_attempts: int = Field(3, ge=1, description="how often producers are told to try a send")
    min_polling: float = Field(5.0, ge=0, description="seconds that a receive waits at least, if its deadline lets it")
    max_polling: float = Field(20.0, gt=0, description="seconds that a receive waits at most")
    polling_margin: float = Field(
        1.0, gt=0, description="seconds before its deadline at which an empty receive is answered"
    )
    receive_batch: int = Field(32, gt=0, le=32, description="messages of one receive")
    min_invisible: float = Field(10.0, ge=0, description="shortest invisible duration in seconds")
    max_invisible: float = Field(43_200.0, gt=0, description="longest invisible duration in seconds")
    auto_renew: bool = Field(True, description="keep messages invisible for as long as push consumers work on them")
    renewal: float = Field(60.0, ge=10, description="invisible duration in seconds that is renewed")
    renewal_limit: float = Field(10_800.0, gt=0, description="seconds after which a message is given to somebody else")
    lite_topic_size: int = Field(64, gt=0, le=64, description="longest name of a lite topic")

    @model_validator(mode="after")
    def _ordered(self) -> "GrpcSettings":
        for least, most in (("min_polling", "max_polling"), ("min_invisible", "max_invisible")):
            if getattr(self, least) > getattr(self, most):
                raise ValueError(f"{least} is more than {most}")
        if self.max_message < self.max_body + self.max_properties:
            raise ValueError("max_message has no room for max_body and max_properties")
        return self

    def options(self, client_expiry: float) -> Options:
        """As the service takes them."""
        names = {field.name for field in fields(Options)} & type(self).model_fields.keys() - {"metric_collector"}
        return Options(
            **{name: getattr(self, name) for name in names},
            publishing_backoff=(self.send_attempts, *Options().publishing_backoff[1:]),
            metric_collector=None if self.metric_collector is None else HostPort.parse(self.metric_collector),
            client_expiry=client_expiry,
        )

    def server_options(self, idle_timeout: float) -> ServerOptions:
        """As the server takes them."""
        return ServerOptions(
            max_receive_message=self.max_message,
            max_send_message=self.max_message,
            max_request_bytes=max(ServerOptions().max_request_bytes, 4 * self.max_message),
            limits=Limits(
                concurrent_streams=self.max_streams, header_list=self.max_header, ping_interval=self.min_ping_interval
            ),
            upkeep=Upkeep(
                ping_after=self.ping_after or None,
                ping_timeout=self.ping_timeout,
                idle=idle_timeout,
                age=self.max_age,
            ),
        )


class SyncSettings(_Table):
    """What replicas share: membership with the official Java proxies too, through their heartbeat topic."""

    enabled: bool = Field(True, description="share group members with Java proxies, renewals among replicas")
    topic: str = Field(
        "DefaultHeartBeatSyncerTopic", min_length=1, description="heartbeatSyncerTopicName of the proxies"
    )
    renewals: str = Field(
        "GantryRenewals", min_length=1, description="topic by which replicas tell each other of renewed messages"
    )


class Settings(BaseSettings):
    """All settings."""

    model_config = SettingsConfigDict(
        env_prefix="GANTRY_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    listen: Annotated[list[ListenSettings], BeforeValidator(_listeners), NoDecode] = Field(
        default=[ListenSettings(address=":8080")], min_length=1, description="listeners, each host:port or a table"
    )
    replica: str = Field("", description="this replica's name in shared membership; default: the host name")
    tls: TlsSettings = TlsSettings()
    cluster: ClusterSettings = ClusterSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    limits: LimitSettings = LimitSettings()
    grpc: GrpcSettings = GrpcSettings()
    sync: SyncSettings = SyncSettings()
    rules: RulesSettings = RulesSettings()
    traffic: TrafficSettings = TrafficSettings()
    admin: AdminSettings = AdminSettings()
    client_expiry: float = Field(
        90.0, ge=10, lt=120, description="seconds without a heartbeat after which a client has left"
    )
    born_host: bool = Field(
        True, description="note the producer's address in the property __BORNHOST of unsigned messages"
    )
    drain_delay: float = Field(
        0.0, ge=0, description="seconds at shutdown in which health says no while everything is served as before"
    )
    drain_timeout: float = Field(10.0, ge=0, description="seconds that requests under way get to finish at shutdown")
    tools: Literal["all", "read", "none"] | None = Field(
        None,
        description="what operators' tools may do about topics and groups; default: `all` on the embedded broker, "
        "`read` before a cluster",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")
    logs: LogSettings = LogSettings()
    tracing: TraceSettings = TraceSettings()
    metrics_listen: Annotated[str, AfterValidator(_address)] | None = Field(
        None, description="host:port of a Prometheus endpoint; default: none"
    )
    metrics: MetricsSettings = MetricsSettings()
    workers: int = Field(1, ge=1, le=256, description="processes that serve the listeners together")

    @field_validator("listen")
    @classmethod
    def _distinct(cls, listeners: list[ListenSettings]) -> list[ListenSettings]:
        for kind, values in (
            ("name", [item.name or item.address for item in listeners]),
            ("broker", [item.broker for item in listeners if item.broker is not None]),
        ):
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                raise ValueError(f"two listeners have the {kind} {', '.join(twice)}")
        return listeners

    @property
    def permitted_tools(self) -> str:
        """What tools may do: a broker that only we can reach has nobody else to create its topics."""
        return self.tools or ("read" if self.embedded.directory is None else "all")

    @property
    def shared(self) -> bool:
        """Whether to share with other replicas; before a broker that only we can reach there are none."""
        return self.sync.enabled and (self.embedded.directory is None or self.embedded.listen is not None)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, _FileSource(settings_cls))


class _FileSource(PydanticBaseSettingsSource):
    """The TOML file chosen by `load`."""

    content: dict[str, Any] = {}  # noqa: RUF012  # replaced, never changed, and only while `load` runs

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self.content.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self.content


def load(file: Path | None, flags: dict[str, Any]) -> Settings:
    """Read all sources; `flags` holds what was given on the command line, by key. Raises ConfigError."""
    _FileSource.content = _read(file) if file is not None else {}
    try:
        return Settings(**flags)
    except ValidationError as error:
        raise ConfigError("\n".join(map(_complaint, error.errors()))) from None
    except SettingsError as error:
        # Raised where the text of a whole table in the environment is not JSON.
        raise ConfigError(f"{error}: {error.__cause__}") from None
    finally:
        _FileSource.content = {}


@dataclass(frozen=True)
class Sources:
    """Where settings come from besides their defaults, so that they can be read again, and traced."""

    file: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Settings:
        """The settings as the sources are now. Raises ConfigError."""
        return load(self.file, dict(self.flags))

    def origins(self) -> dict[str, str]:
        """By key (`cluster.namesrv`), what last said something: file, env or flag. Raises ConfigError."""
        content = {} if self.file is None else _read(self.file)
        environment = EnvSettingsSource(Settings)()
        sources = (("file", content), ("env", environment), ("flag", self.flags))
        return {key: name for name, values in sources for key in _keys(values)}


def _keys(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def check_backend(settings: Settings) -> None:
    """Exactly one of a cluster and an embedded broker is to be served. Raises ConfigError."""
    cluster, directory = settings.cluster.namesrv, settings.embedded.directory
    if cluster and directory is not None:
        raise ConfigError(
            f"cluster.namesrv ({';'.join(cluster)}) and embedded.directory ({directory}) exclude each other: "
            "keep one of them"
        )
    if not cluster and directory is None:
        raise ConfigError(
            "nothing to serve: give the cluster's name servers in cluster.namesrv (--namesrv HOST:PORT), "
            "or a directory for the embedded broker in embedded.directory (--embedded DIR)"
        )
    if directory is None and settings.embedded.listen is not None:
        raise ConfigError("embedded.listen needs embedded.directory (--embedded DIR)")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}") from None


def _complaint(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"]) or "configuration"
    reason = {"extra_forbidden": "there is no such setting"}.get(error["type"], error["msg"])
    return f"{key}: {reason}"
