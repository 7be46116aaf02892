"""The configuration in force: what each setting is and where from; reading it again."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import anyio.to_thread
from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python

from protocol_negotiation.tls import TlsError, server_context
from proxy.operations.replica import Replica
from proxy.operations.values import Answer
from proxy.settings.loading import ConfigError, Sources, check_backend
from proxy.settings.model import Settings

_log = logging.getLogger("gantry.admin")

_MASK = "********"
Origin = Literal["default", "file", "env", "flag"]

# What may change while the replica runs: these keys, and all below those that end with a dot.
# The bounds of one connection are those of connections that come from then on.
RUN_TIME = (
    "born_host",
    "cluster.request_timeout",
    "drain_delay",
    "drain_timeout",
    "limits.",
    "log_level",
    "tls.certificate",
    "tls.client_auth",
    "tls.client_ca",
    "tls.key",
    "tls.key_password",
)
# Of those, what listeners and the gRPC server were made with.
_FIXED = ("limits.idle_timeout", "limits.negotiation_timeout")


class Setting(Answer):
    """One setting. A secret's value is masked."""

    key: str = Field(examples=["cluster.namesrv"])
    value: Any = Field(examples=[["192.0.2.10:9876"]])
    default: Any = Field(examples=[[]])
    origin: Origin = Field(examples=["file"])
    run_time: bool = Field(description="whether a reload can change it; others need a restart")


class SettingChange(Answer):
    """A setting that a reload finds changed."""

    key: str = Field(examples=["log_level"])
    old: Any = Field(examples=["info"])
    new: Any = Field(examples=["debug"])
    origin: Origin
    effect: Literal["applied", "would apply", "needs a restart"]


class Reload(Answer):
    """What a reload has found, and done."""

    dry_run: bool
    changes: list[SettingChange]


class InvalidConfiguration(Exception):
    """The configuration as it is now is not valid; nothing has changed. `complaints` name each key."""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__("; ".join(complaints))
        self.complaints = complaints


class Configuration:
    """The settings of a replica and their sources."""

    def __init__(self, replica: Replica, sources: Sources | None, origins: Mapping[str, str]) -> None:
        self._replica = replica
        self._sources = sources
        self._origins = origins
        # Others that can take a change of theirs while running: what keys begin with, and what takes the settings.
        self.takers: dict[str, Callable[[Settings], None]] = {}

    def settings(self) -> list[Setting]:
        """Every setting."""
        defaults = dict(_flat(Settings.model_construct()))
        return [
            Setting(
                key=key,
                value=_shown(key, value),
                default=defaults.get(key),
                origin=self._origin(key),
                run_time=self._may_change(key),
            )
            for key, value in _flat(self._replica.settings)
        ]

    async def reload(self, dry_run: bool) -> Reload:
        """Read the sources again and take what can be taken. Raises InvalidConfiguration, and then takes nothing."""
        sources = self._sources
        if sources is None:
            raise InvalidConfiguration(["a program has made these settings; there is nothing to read them from again"])
        try:
            wanted = sources.load()
            check_backend(wanted)
            origins = sources.origins()
        except ConfigError as error:
            raise InvalidConfiguration(str(error).splitlines()) from None
        old, new = dict(_flat(self._replica.settings)), dict(_flat(wanted))
        changed = [key for key in new if new[key] != old.get(key)]
        taken = [key for key in changed if self._may_change(key)]
        if any(key.startswith("tls.") for key in taken):
            await _check_certificates(wanted)
        if taken and not dry_run:
            await self._take(wanted, taken)
            self._origins = {**self._origins, **{key: origins.get(key, "default") for key in taken}}
        effect: Literal["applied", "would apply"] = "would apply" if dry_run else "applied"
        return Reload(
            dry_run=dry_run,
            changes=[
                SettingChange(
                    key=key,
                    old=_shown(key, old.get(key)),
                    new=_shown(key, new[key]),
                    origin=_origin(origins, key),
                    effect=effect if key in taken else "needs a restart",
                )
                for key in changed
            ],
        )

    async def _take(self, wanted: Settings, keys: list[str]) -> None:
        settings = _with(self._replica.settings, wanted, keys)
        self._replica.apply(settings)
        await self._replica.refresh_certificates()
        for prefix, take in self.takers.items():
            if any(key.startswith(prefix) for key in keys):
                take(settings)
        _log.info("settings changed: %s", ", ".join(keys))

    def _may_change(self, key: str) -> bool:
        if key in _FIXED:
            return False
        if key.startswith("tls."):
            # Whether there is TLS at all was settled when the listeners were made.
            return key in RUN_TIME and self._replica.settings.tls.files is not None
        prefixes = (*self.takers, *(name for name in RUN_TIME if name.endswith(".")))
        return key in RUN_TIME or key.startswith(tuple(prefixes))

    def _origin(self, key: str) -> Origin:
        return _origin(self._origins, key)


async def _check_certificates(wanted: Settings) -> None:
    """Raises InvalidConfiguration where no TLS can be made of the files."""
    files = wanted.tls.files
    if files is None:
        raise InvalidConfiguration(["tls.certificate: TLS can be ended by a restart only"])
    try:
        await anyio.to_thread.run_sync(server_context, files)
    except TlsError as error:
        raise InvalidConfiguration([f"tls: {error}"]) from None


def _origin(origins: Mapping[str, str], key: str) -> Origin:
    # In the environment a whole table may stand in one variable.
    found = origins.get(key, "default")
    return found if found in ("file", "env", "flag") else "default"  # type: ignore[return-value]


def _flat(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, to_jsonable_python(value, fallback=str)


def _secrets(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Keys whose fields are not to be shown (`repr=False`)."""
    for name, info in model.model_fields.items():
        if not info.repr:
            yield prefix + name
        table = info.annotation
        if isinstance(table, type) and issubclass(table, BaseModel):
            yield from _secrets(table, f"{prefix}{name}.")


_SECRETS = frozenset(_secrets(Settings))


def _shown(key: str, value: Any) -> Any:
    return _MASK if key in _SECRETS and value is not None else value


def _with(settings: Settings, wanted: Settings, keys: list[str]) -> Settings:
    """The settings with these keys as they are wanted; both are valid, and keys that belong together come together."""
    update: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for key in keys:
        table, _, name = key.rpartition(".")
        if table:
            tables.setdefault(table, {})[name] = getattr(getattr(wanted, table), name)
        else:
            update[name] = getattr(wanted, name)
    for table, values in tables.items():
        update[table] = getattr(settings, table).model_copy(update=values)
    return settings.model_copy(update=update)
