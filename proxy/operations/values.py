"""What the API's answers are made of."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

_Item = TypeVar("_Item")


class Answer(BaseModel):
    """Anything that is answered."""

    model_config = ConfigDict(frozen=True)


class Question(BaseModel):
    """The body of a request; what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Page(Answer, Generic[_Item]):
    """A part of a list; `next` is the cursor of the part that follows, where there is one."""

    items: list[_Item]
    total: int = Field(description="how many there are with this filter, on all pages")
    next: str | None = Field(description="give it as `cursor` to get the next page", examples=[None])


class Many(Answer, Generic[_Item]):
    """A whole list."""

    items: list[_Item]


# What RocketMQ allows in names, and what its own topics and groups have besides.
Name = Annotated[str, Field(pattern=r"^[%|a-zA-Z0-9_-]{1,255}$")]
Text = Annotated[str, Field(min_length=1, max_length=512)]


def at(seconds: float) -> datetime:
    """A time, from seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def at_milliseconds(milliseconds: int) -> datetime | None:
    """A time, from milliseconds since 1970; None where that is none that a calendar has."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds) if milliseconds > 0 else None
    except OverflowError:
        return None
