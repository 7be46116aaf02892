"""The settings of traffic records."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode


def _split(value: object) -> object:
    """Rules may be written as one text, separated by `;`."""
    return [part.strip() for part in value.split(";") if part.strip()] if isinstance(value, str) else value


def _rule(text: str) -> str:
    parse(text)
    return text


def parse(text: str) -> tuple[str, float]:
    """Pattern and share of a rule, `pattern=share`. Raises ValueError."""
    pattern, _, share = text.rpartition("=")
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if not pattern or not 0 <= value <= 1:
        raise ValueError(f"not a topic pattern and a share between 0 and 1, as in orders-*=0.1: {text!r}")
    return pattern.strip(), value


class TrafficSettings(BaseModel):
    """Records of requests, connections and memberships, as Parquet files."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str | None = Field(
        None, min_length=1, repr=False, description="directory or URL (s3://…) that records are written to; none: off"
    )
    interval: float = Field(
        60.0, ge=0.1, description="seconds after which a file is complete: the most that a crash loses"
    )
    file_size: int = Field(128 * 2**20, ge=2**20, description="bytes at which a file is complete")
    buffer: int = Field(100_000, ge=10_000, description="records that wait in memory; beyond, they are dropped")
    retention_time: float = Field(604_800.0, ge=0, description="seconds for which files are kept; 0: for ever")
    retention_size: int = Field(
        10 * 2**30, ge=0, description="bytes of files beyond which the oldest are removed; 0: no bound"
    )
    sample: Annotated[list[Annotated[str, AfterValidator(_rule)]], BeforeValidator(_split), NoDecode] = Field(
        [],
        description="rules `topic pattern=share`: the share of its requests that is recorded; the first to fit counts",
    )

    @property
    def rules(self) -> tuple[tuple[str, float], ...]:
        """The rules as pattern and share."""
        return tuple(map(parse, self.sample))
