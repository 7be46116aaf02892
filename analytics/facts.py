"""Facts that records do not contain: prices, capacity of a replica, newest versions.

Typed, each with a default; a TOML file replaces them (`gantry analytics report --facts FILE`).
"""

import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class FactsError(Exception):
    """Raised for an invalid facts file; the text is a sentence that names the key."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


_Price = Annotated[float, Field(ge=0)]
_Rate = Annotated[float, Field(gt=0)]
_Language = Annotated[str, Field(min_length=1)]
_Version = Annotated[str, Field(pattern=r"^\d+(\.\d+){0,2}$")]
Newest = Mapping[Literal["remoting", "grpc"], Mapping[_Language, _Version]]


class Prices(_Table):
    """Prices in one currency. The defaults only weigh one resource against another."""

    million_requests: _Price = Field(0.5, description="of a million requests")
    million_messages: _Price = Field(0.5, description="of a million messages, sent or delivered")
    gigabyte_in: _Price = Field(0.05, description="of 10⁹ bytes of bodies that came")
    gigabyte_out: _Price = Field(0.05, description="of 10⁹ bytes of bodies that went")
    broker_hour: _Price = Field(0.1, description="of an hour that brokers worked or waited for a tenant")


class Limits(_Table):
    """Capacity of one replica in its busy hour, number of replicas, and the share of it that may be used."""

    requests_per_s: _Rate = Field(20_000.0, description="requests per second")
    messages_per_s: _Rate = Field(40_000.0, description="messages per second")
    bytes_per_s: _Rate = Field(100e6, description="bytes of bodies per second, both ways together")
    replicas: int = Field(2, ge=1, description="replicas that there are")
    headroom: float = Field(0.6, gt=0, le=1, description="share of what they can do that may be used")
    ahead_days: int = Field(90, ge=1, description="days that are looked ahead for replicas_ahead")


class Facts(_Table):
    """All facts."""

    prices: Prices = Field(Prices(), description="what tenants' use costs")
    limits: Limits = Field(Limits(), description="until when it suffices")
    newest: Newest = Field({}, description="version by protocol and language; default: the newest that is seen")


def parse(text: str) -> Facts:
    """Parse the text of a facts file. Raises FactsError."""
    try:
        return Facts.model_validate(tomllib.loads(text))
    except ValidationError as error:
        first, *others = error.errors()
        more = f" (and {len(others)} more)" if others else ""
        raise FactsError(_complaint(first) + more) from None
    except (ValueError, RecursionError) as error:
        raise FactsError(f"it is no TOML: {error}") from None


def _complaint(error: Any) -> str:
    # A key of a mapping that is wrong itself is followed by "[key]".
    key = ".".join(str(part) for part in error["loc"] if part != "[key]")
    reason = "there is no such key" if error["type"] == "extra_forbidden" else error["msg"]
    return f"{key}: {reason}"
