"""Loading of settings from a TOML file, the environment and command-line flags.

Later sources override earlier ones, key by key: defaults, the file (`--config FILE`), the environment (`GANTRY_…`,
`__` between levels: `GANTRY_CLUSTER__NAMESRV`), flags.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from protocol_negotiation.peer import HostPort
from proxy.settings.cluster import ClientSignatures
from proxy.settings.env_source import EnvironmentSource
from proxy.settings.fault_text import fault_text
from proxy.settings.file_source import ConfigError, FileSource, read_file
from proxy.settings.model import Settings

__all__ = ["ConfigError", "Sources", "check_access", "check_backend", "load"]

# Texts instead of pydantic's, by its type of error.
_REASONS = {
    "extra_forbidden": "there is no such setting",
    "path_type": "Input should be a path, in quotes",
}


def load(file: Path | None, flags: dict[str, Any]) -> Settings:
    """Load and validate the settings; `flags` holds command-line values by key. Raises ConfigError."""
    FileSource.content = read_file(file) if file is not None else {}
    try:
        return Settings(**flags)
    except ValidationError as error:
        raise ConfigError("\n".join(map(_describe, error.errors()))) from None
    except SettingsError as error:
        # An environment variable holds a whole table that is not valid JSON.
        raise ConfigError(f"{error}: {error.__cause__}") from None
    finally:
        FileSource.content = {}


@dataclass(frozen=True)
class Sources:
    """The sources of settings other than the defaults, kept so that settings can be reloaded and explained."""

    file: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Settings:
        """Load the settings from the sources' present content. Raises ConfigError."""
        return load(self.file, dict(self.flags))

    def origins(self) -> dict[str, str]:
        """Return the last source (file, env or flag) of each key (`cluster.namesrv`). Raises ConfigError."""
        content = {} if self.file is None else read_file(self.file)
        environment = EnvironmentSource(Settings)()
        sources = (("file", content), ("env", environment), ("flag", self.flags))
        return {key: name for name, values in sources for key in _keys(values)}


def _keys(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def check_backend(settings: Settings) -> None:
    """Check that the settings name either a cluster or an embedded broker, and TLS and a secret that it has.

    Raises ConfigError.
    """
    cluster, directory = settings.cluster.namesrv, settings.embedded.directory
    if cluster and directory is not None:
        raise ConfigError(
            f"cluster.namesrv ({';'.join(cluster)}) and embedded.directory ({directory}) exclude each other: "
            "keep one of them"
        )
    if not cluster and directory is None:
        raise ConfigError(
            "no backend: set the cluster's name servers in cluster.namesrv (--namesrv HOST:PORT), "
            "or the embedded broker's directory in embedded.directory (--embedded DIR)"
        )
    if settings.cluster_tls.unused:
        keys = ", ".join(f"cluster_tls.{key}" for key in settings.cluster_tls.unused)
        raise ConfigError(
            f"{keys}: cluster_tls.enabled is false, so connections to the cluster would be in plain text: "
            "set it to true, or remove the other keys"
        )
    if directory is not None and settings.cluster_tls.enabled:
        raise ConfigError("cluster_tls.enabled needs cluster.namesrv: the embedded broker is in this process")
    try:
        table = "cluster"
        _ = settings.cluster.credentials
        table = "embedded"
        _ = settings.embedded.super_credentials
    except ValueError as error:
        raise ConfigError(f"{table}.{error}") from None
    if directory is not None and settings.cluster.client_signatures is ClientSignatures.PASS:
        raise ConfigError("cluster.client_signatures is pass, but the embedded broker does not check signatures")
    if directory is None and settings.auth.brokers and settings.cluster.access_key is None:
        raise ConfigError("auth.brokers needs cluster.access_key: brokers list their users for a super user only")
    if directory is None and settings.embedded.listen is not None:
        raise ConfigError("embedded.listen needs embedded.directory (--embedded DIR)")


def check_access(settings: Settings) -> None:
    """Check that listeners which other hosts reach authenticate their clients. Raises ConfigError.

    Only the setting `auth.anonymous` permits listeners without authentication there.
    """
    if settings.auth.enabled or settings.auth.anonymous == "allow":
        return
    # Listeners in plain text take no certificate.
    addresses = [item.address for item in settings.listen if not (item.tls and settings.tls.authenticates)]
    broker = settings.embedded
    if broker.directory is not None and broker.listen is not None and not settings.tls.authenticates:
        addresses.append(broker.listen)
    exposed = [address for address in addresses if not HostPort.parse(address).is_local]
    if exposed:
        raise ConfigError(
            f"{', '.join(exposed)}: other hosts can connect, and nothing authenticates them. Set auth.users (a file "
            'with users), or auth.anonymous = "allow" (--anonymous) if everyone may do everything, or listen on '
            "127.0.0.1"
        )


def _describe(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"]) or "configuration"
    return f"{key}: {_REASONS.get(error['type']) or fault_text(error)}"
