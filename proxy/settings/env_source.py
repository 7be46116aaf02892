"""The settings source of environment variables."""

from collections.abc import Mapping
from typing import Any

from pydantic_settings import EnvSettingsSource

# The address of the admin API for the command line, and beginnings of tables that are values of the setting `admin`.
_ADMIN, _TABLE = "gantry_admin", "{"
# Names here are in small letters.
_PREFIX, _DELIMITER = "gantry_", "__"


class EnvironmentSource(EnvSettingsSource):
    """Variables `GANTRY_…`, without the command line's `GANTRY_ADMIN=URL`, whose name is that of a table here.

    Variables of tables that do not exist are values, so that validation refuses their keys. Other unknown names may be
    those of commands, or of Kubernetes for a Service with the name gantry.
    """

    def __call__(self) -> dict[str, Any]:
        values = super().__call__()
        for name, value in self.env_vars.items():
            table, delimiter, key = name.removeprefix(_PREFIX).partition(_DELIMITER)
            if name.startswith(_PREFIX) and delimiter and table not in self.settings_cls.model_fields:
                values[f"{table}.{key.replace(_DELIMITER, '.')}"] = value
        return values

    def _load_env_vars(self) -> Mapping[str, str | None]:
        found = super()._load_env_vars()
        if (found.get(_ADMIN) or _TABLE).lstrip().startswith(_TABLE):
            return found
        return {name: value for name, value in found.items() if name != _ADMIN}
