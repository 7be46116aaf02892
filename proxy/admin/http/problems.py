"""Errors as RFC 9457 has them: `application/problem+json`, always."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from pydantic import BaseModel, Field

MEDIA_TYPE = "application/problem+json"
MISTAKE = "this is a mistake of the replica's; its log says more"


class Fault(BaseModel):
    """What is wrong with one part of a request."""

    where: str = Field(description="query, path or body, and what in it", examples=["query limit"])
    detail: str = Field(examples=["Input should be less than or equal to 1000"])


class Problem(BaseModel):
    """Why a request was not served (RFC 9457)."""

    type: str = Field("about:blank", description="the status says what kind of problem it is")
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["no connection has the number 4711"])
    instance: str = Field(description="the path that was asked for", examples=["/v1/connections/4711"])
    faults: list[Fault] | None = Field(None, description="each mistake, where the request has some")


class WorkerStatus(BaseModel):
    """How a request went at one worker."""

    worker: int
    status: int = Field(examples=[200])
    detail: str | None = Field(None, description="why not, where it did not go well")


class JointProblem(Problem):
    """The same where several workers answer as one."""

    missing_workers: list[int] | None = Field(None, description="workers that did not answer")
    workers: list[WorkerStatus] | None = Field(None, description="how it went at each worker, where that differs")


class Refused(Exception):
    """A request is not served; `headers` go with the answer, `more` are members of the problem that only some have."""

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


def content(
    status: int,
    detail: str,
    instance: str,
    faults: Sequence[tuple[str, str]] = (),
    more: Mapping[str, Any] | None = None,
) -> bytes:
    """A problem as it is sent; `more` are members that only some have."""
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = "Error"
    told: dict[str, Any] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        # A path is whatever the caller wrote.
        "instance": instance.encode("utf-8", "replace").decode(),
    }
    if faults:
        told["faults"] = [{"where": where, "detail": text} for where, text in faults]
    return orjson.dumps({**told, **(more or {})})
