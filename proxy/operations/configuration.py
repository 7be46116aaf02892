"""The settings in force with their origins, and their reload."""

import logging
from collections.abc import Mapping
from typing import Any, Literal

import anyio.to_thread
from pydantic import Field, ValidationError

from protocol_negotiation.tls import TlsError, server_context
from proxy.operations.failures import Failure, FailureKind, OperationFailed
from proxy.operations.replica import Replica
from proxy.operations.values import Comparable, Reply
from proxy.settings.loading import ConfigError, Sources, check_access, check_backend
from proxy.settings.masking import flat, mask
from proxy.settings.model import Settings
from proxy.settings.tls import TlsSettings

_log = logging.getLogger("gantry.admin")

Origin = Literal["default", "file", "env", "flag"]

# Settings that may change while the replica runs: these keys, and all below those that end with a dot.
# Limits of a connection apply to connections that are opened afterwards.
RUN_TIME = (
    "born_host",
    "cluster.request_timeout",
    "drain_delay",
    "drain_timeout",
    "limits.",
    "log_level",
    "tls.certificate",
    "tls.certificates",
    "tls.ciphers",
    "tls.client_auth",
    "tls.client_ca",
    "tls.crl",
    "tls.crl_chain",
    "tls.curves",
    "tls.key",
    "tls.key_password",
    "tls.minimum_version",
    "tls.session_tickets",
)
# Exceptions: listeners, the gRPC server and the bounds at brokers keep the values that they were created with.
_FIXED = (
    "limits.broker_polls",
    "limits.broker_window",
    "limits.dead_peer_timeout",
    "limits.handshakes",
    "limits.idle_timeout",
    "limits.negotiation_timeout",
    "limits.negotiations",
)
# With several workers, the supervisor's time until it kills them is that of the start.
_SUPERVISED = ("drain_delay", "drain_timeout")


class Setting(Comparable):
    """One setting. A secret's value is masked."""

    MERGE_KEY = ("key",)

    key: str = Field(examples=["cluster.namesrv"])
    value: Any = Field(examples=[["192.0.2.10:9876"]])
    default: Any = Field(examples=[[]])
    origin: Origin = Field(examples=["file"])
    run_time: bool = Field(description="whether a reload can change it; others need a restart")

    @property
    def compared(self) -> object:
        """The value and its origin."""
        return self.value, self.origin


class SettingChange(Comparable):
    """A setting that has changed since it was read."""

    MERGE_KEY = ("key",)

    key: str = Field(examples=["log_level"])
    old: Any = Field(examples=["info"])
    new: Any = Field(examples=["debug"])
    origin: Origin
    effect: Literal["applied", "would apply", "needs a restart"]


class Reload(Reply):
    """The result of a reload."""

    dry_run: bool
    changes: list[SettingChange]


class InvalidConfiguration(OperationFailed):
    """The changed settings are not valid; none was applied. `complaints` name each key."""

    def __init__(self, complaints: list[str]) -> None:
        faults = [("configuration", complaint) for complaint in complaints]
        detail = "the configuration is not valid; nothing has changed"
        super().__init__(Failure(FailureKind.CONFLICT, detail, faults))
        self.complaints = complaints


class Configuration:
    """The settings of a replica and their sources."""

    def __init__(self, replica: Replica, sources: Sources | None, origins: Mapping[str, str]) -> None:
        self._replica = replica
        self._sources = sources
        self._origins = origins

    def settings(self) -> list[Setting]:
        """Return all settings."""
        defaults = dict(flat(Settings.model_construct()))
        return [
            Setting(
                key=key,
                value=mask(key, value),
                default=defaults.get(key),
                origin=self._origin(key),
                run_time=self._may_change(key),
            )
            for key, value in flat(self._replica.settings)
        ]

    async def reload(self, dry_run: bool) -> list[SettingChange]:
        """Read the sources again and apply the settings that may change. Raises InvalidConfiguration, and then applies
        none."""
        sources = self._sources
        if sources is None:
            raise InvalidConfiguration(
                ["the settings were created by a program: there is no source to read them from again"]
            )
        try:
            changed_settings = sources.load()
            check_backend(changed_settings)
            origins = sources.origins()
        except ConfigError as error:
            raise InvalidConfiguration(str(error).splitlines()) from None
        old, new = dict(flat(self._replica.settings)), dict(flat(changed_settings))
        changed = [key for key in new if new[key] != old.get(key)]
        applicable = [key for key in changed if self._may_change(key)]
        effective = _with(self._replica.settings, changed_settings, applicable)
        if any(key.startswith("tls.") for key in applicable):
            await _check_certificates(effective)
            _check_access(effective)
        if applicable and not dry_run:
            await self._apply(effective, applicable)
            self._origins = {**self._origins, **{key: origins.get(key, "default") for key in applicable}}
        effect: Literal["applied", "would apply"] = "would apply" if dry_run else "applied"
        return [
            SettingChange(
                key=key,
                old=mask(key, old.get(key)),
                new=mask(key, new[key]),
                origin=_origin(origins, key),
                effect=effect if key in applicable else "needs a restart",
            )
            for key in changed
        ]

    async def _apply(self, settings: Settings, keys: list[str]) -> None:
        self._replica.apply(settings)
        await self._replica.refresh_certificates()
        _log.info("settings changed: %s", ", ".join(keys))

    def _may_change(self, key: str) -> bool:
        if key in _FIXED or (key in _SUPERVISED and self._replica.settings.workers > 1):
            return False
        if key.startswith("tls."):
            # Listeners are created with or without TLS.
            return key in RUN_TIME and self._replica.settings.tls.files is not None
        return key in RUN_TIME or key.startswith(tuple(name for name in RUN_TIME if name.endswith(".")))

    def _origin(self, key: str) -> Origin:
        return _origin(self._origins, key)


async def _check_certificates(settings: Settings) -> None:
    """Raise InvalidConfiguration if the TLS files are not usable."""
    try:
        # With the values of settings that need a restart, the changed ones may not be valid.
        TlsSettings.model_validate(dict(settings.tls))
    except ValidationError as error:
        raise InvalidConfiguration([f"tls: {problem['msg']}" for problem in error.errors()]) from None
    files = settings.tls.files
    if files is None:
        raise InvalidConfiguration(["tls.certificate: turning TLS off needs a restart"])
    try:
        await anyio.to_thread.run_sync(server_context, files)
    except TlsError as error:
        raise InvalidConfiguration([f"tls: {error}"]) from None


def _check_access(settings: Settings) -> None:
    """Raise InvalidConfiguration if the listeners would be without authentication until a restart."""
    try:
        # Client certificates change at once, users only at a restart.
        check_access(settings)
    except ConfigError as error:
        raise InvalidConfiguration(
            [f"tls.client_auth: until a restart it authenticates the clients: {error}"]
        ) from None


def _origin(origins: Mapping[str, str], key: str) -> Origin:
    # One environment variable may hold a whole table, under the table's key.
    origin = origins.get(key, "default")
    return origin if origin in ("file", "env", "flag") else "default"  # type: ignore[return-value]


def _with(settings: Settings, changed: Settings, keys: list[str]) -> Settings:
    """Return the settings with the values of `changed` for these keys."""
    update: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for key in keys:
        table, _, name = key.rpartition(".")
        if table:
            tables.setdefault(table, {})[name] = getattr(getattr(changed, table), name)
        else:
            update[name] = getattr(changed, name)
    for table, values in tables.items():
        update[table] = getattr(settings, table).model_copy(update=values)
    return settings.model_copy(update=update)
