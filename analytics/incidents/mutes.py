"""The mute file: incidents that are known and accepted.

[[mute]]
kind = "traffic_surge"            # optional; without it, of any kind
about = { topic = "acme%report" } # all of these attributes must be equal
until = 2026-12-31                # optional; the last day
reason = "yearly export"
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from analytics.incidents.finding import ATTRIBUTES
from analytics.incidents.incident import Incident
from analytics.incidents.kinds import KINDS


class MutesError(Exception):
    """Raised for an invalid mute file; the text is a sentence that names the key."""


class Mute(BaseModel):
    """One entry of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    reason: Annotated[str, Field(min_length=1)]
    about: Mapping[str, str] = {}
    kind: str | None = None
    until: date | None = None

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, value: str | None) -> str | None:
        if value is not None and value not in KINDS:
            raise ValueError(f"{value!r} is no kind of incident: {', '.join(sorted(KINDS))}")
        return value

    @field_validator("about")
    @classmethod
    def _known_attributes(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name in value:
            if name not in ATTRIBUTES:
                raise ValueError(f"{name!r} is no attribute of incidents: {', '.join(ATTRIBUTES)}")
        return value

    def matches(self, incident: Incident) -> bool:
        """Return whether the incident is muted by this entry."""
        if self.kind not in (None, incident.kind):
            return False
        if self.until is not None and datetime.fromtimestamp(incident.start, UTC).date() > self.until:
            return False
        return all(incident.about.get(name) == value for name, value in self.about.items())


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    mute: tuple[Mute, ...] = ()

    @field_validator("mute", mode="before")
    @classmethod
    def _as_tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


def parse(text: str) -> tuple[Mute, ...]:
    """Parse the text of a mute file. Raises MutesError."""
    try:
        return _File.model_validate(tomllib.loads(text)).mute
    except ValidationError as error:
        first, *others = error.errors()
        more = f" (and {len(others)} more)" if others else ""
        key = ".".join(str(part) for part in first["loc"])
        reason = "there is no such key" if first["type"] == "extra_forbidden" else first["msg"]
        raise MutesError(f"{key}: {reason}{more}") from None
    except (ValueError, RecursionError) as error:
        raise MutesError(f"it is no TOML: {error}") from None


def applied(incidents: Sequence[Incident], mutes: Sequence[Mute]) -> list[Incident]:
    """Return all incidents; those that an entry matches have its reason."""
    result = []
    for incident in incidents:
        reason = next((mute.reason for mute in mutes if mute.matches(incident)), None)
        result.append(incident if reason is None else replace(incident, muted=reason))
    return result
