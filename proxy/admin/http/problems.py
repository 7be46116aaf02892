"""Problem details (RFC 9457), the bodies of all errors: `application/problem+json`."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from pydantic import BaseModel, Field

MEDIA_TYPE = "application/problem+json"


class Fault(BaseModel):
    """A mistake in one part of a request."""

    where: str = Field(description="query, path or body, and the name of the field", examples=["query limit"])
    detail: str = Field(examples=["Input should be less than or equal to 1000"])


class Problem(BaseModel):
    """The reason why a request failed (RFC 9457)."""

    type: str = Field("about:blank", description="the status is the type of the problem")
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["no connection has the number 4711"])
    instance: str = Field(description="the request's path", examples=["/v1/connections/4711"])
    faults: list[Fault] | None = Field(None, description="all mistakes in the request")


class WorkerStatus(BaseModel):
    """The status of a request at one worker."""

    worker: int
    status: int = Field(examples=[200])
    detail: str | None = Field(None, description="the reason, if it failed there")


class WorkersProblem(Problem):
    """The reason why a request to several workers failed."""

    missing_workers: list[int] | None = Field(None, description="workers that did not answer")
    workers: list[WorkerStatus] | None = Field(None, description="the status at each worker, where they differ")


class Refused(Exception):
    """A request is not served. headers: of the response; more: additional members of the problem."""

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        faults: Sequence[tuple[str, str]] = (),
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.faults = faults
        self.more = more


def too_many_logins() -> Refused:
    """Return the refusal of a login that is not verified now."""
    return Refused(429, "logins are not verified now, try again", {"Retry-After": "1"})


def content(
    status: int,
    detail: str,
    instance: str,
    faults: Sequence[tuple[str, str]] = (),
    more: Mapping[str, Any] | None = None,
) -> bytes:
    """Return a problem as JSON. more: additional members."""
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = "Error"
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        # The caller's path may hold unpaired surrogates.
        "instance": instance.encode("utf-8", "replace").decode(),
    }
    if faults:
        problem["faults"] = [{"where": where, "detail": text} for where, text in faults]
    return orjson.dumps({**problem, **(more or {})})
