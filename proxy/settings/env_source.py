"""The settings source of environment variables."""

from collections.abc import Mapping

from pydantic_settings import EnvSettingsSource

# The address of the admin API for the command line, and beginnings of tables that are values of the setting `admin`.
_ADMIN, _TABLE = "gantry_admin", "{"


class EnvironmentSource(EnvSettingsSource):
    """Variables `GANTRY_…`, without the command line's `GANTRY_ADMIN=URL`, whose name is that of a table here."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        found = super()._load_env_vars()
        if (found.get(_ADMIN) or _TABLE).lstrip().startswith(_TABLE):
            return found
        return {name: value for name, value in found.items() if name != _ADMIN}
