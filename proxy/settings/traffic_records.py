"""Settings of traffic records (table `traffic`)."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from proxy.settings.field_types import SettingsTable, split_list


def _sampling_rule(text: str) -> str:
    parse(text)
    return text


def parse(text: str) -> tuple[str, float]:
    """Return the topic pattern and the share of a sampling rule `pattern=share`. Raises ValueError."""
    pattern, _, share_text = text.rpartition("=")
    try:
        share = float(share_text)
    except ValueError:
        share = -1.0
    if not pattern or not 0 <= share <= 1:
        raise ValueError(f"not a topic pattern and a share between 0 and 1, as in orders-*=0.1: {text!r}")
    return pattern.strip(), share


_SamplingRules = Annotated[
    list[Annotated[str, AfterValidator(_sampling_rule)]], BeforeValidator(split_list(";")), NoDecode
]


class TrafficSettings(SettingsTable):
    """Parquet files of requests, connections and memberships."""

    directory: str | None = Field(
        None, min_length=1, repr=False, description="directory or URL (s3://…) of the records; default: no records"
    )
    interval: float = Field(
        60.0, ge=0.1, description="seconds after which a file is completed; a crash loses at most these records"
    )
    file_size: int = Field(128 * 2**20, ge=2**20, description="size in bytes at which a file is completed")
    buffer: int = Field(100_000, ge=10_000, description="maximum buffered records; further records are dropped")
    retention_time: float = Field(604_800.0, ge=0, description="age in seconds at which files are deleted; 0: no limit")
    retention_size: int = Field(
        10 * 2**30, ge=0, description="total size in bytes above which the oldest files are deleted; 0: no limit"
    )
    sample: _SamplingRules = Field(
        [],
        description="rules `topic pattern=share`: the recorded share of the topic's requests; the first match applies",
    )

    @property
    def rules(self) -> tuple[tuple[str, float], ...]:
        """The sampling rules as (topic pattern, share)."""
        return tuple(map(parse, self.sample))


def redacted(directory: str) -> str:
    """Return a directory or URL of records without user, password and options, which may be secret."""
    if "://" not in directory:
        return directory
    parts = urlsplit(directory)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
