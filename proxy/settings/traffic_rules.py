"""The settings of traffic rules."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class RulesSettings(BaseModel):
    """The table `rules`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Path | None = Field(None, description="TOML file with traffic rules; default: none")
    reload_interval: float = Field(2.0, gt=0, description="seconds between looks whether the rules file has changed")
