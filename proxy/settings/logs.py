"""Settings of the log (table `logs`)."""

from typing import Literal

from pydantic import Field

from proxy.settings.field_types import SettingsTable


class LogSettings(SettingsTable):
    """The log's format, and which requests are logged."""

    format: Literal["text", "json"] = Field("text", description="text, or json: one JSON object per line")
    access: bool = Field(False, description="log every request (logger `gantry.access`)")
    slow: float | None = Field(
        1.0, gt=0, description="seconds from which a request other than a long poll is logged; none: never"
    )
    burst: int = Field(
        20, gt=0, description="maximum lines of one kind in ten seconds; further ones are counted, not written"
    )
