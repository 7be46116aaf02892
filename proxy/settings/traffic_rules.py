"""Settings of traffic rules (table `rules`)."""

from pathlib import Path

from pydantic import Field

from proxy.settings.field_types import SettingsTable


class RulesSettings(SettingsTable):
    """The traffic rules file."""

    file: Path | None = Field(None, description="TOML file with traffic rules; default: no rules")
    reload_interval: float = Field(2.0, gt=0, description="seconds between checks of the rules file for changes")
