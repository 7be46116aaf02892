"""Routes of a browser's session: the caller, login, logout."""

import base64
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from proxy.admin.access import BadCredentials, Caller, Gatekeeping, Role
from proxy.admin.http.problems import Refused, too_many_logins
from proxy.admin.http.routes.common import Operations, Route
from proxy.admin.sessions import Session, set_cookie
from proxy.auth.admin_users import TooManyLogins
from proxy.operations.values import Answer, RequestBody

router = APIRouter(prefix="/v1", tags=["session"], route_class=Route)


class Login(RequestBody):
    """A token; or with a user of `auth`, its secret key."""

    user: str | None = Field(None, max_length=255, description="access key of a user; null: a token", examples=[None])
    token: str = Field(min_length=1, max_length=4096, description="token, or the user's secret key")


class SessionState(Answer):
    """The caller and its role."""

    name: str = Field(examples=["write_token"])
    role: str = Field(description="none, read or write", examples=["write"])
    session: bool = Field(description="whether a cookie identifies the caller")
    csrf: str | None = Field(
        description="value of the header X-CSRF-Token that writes of this session need; null without a session"
    )


def _gatekeeping(request: Request) -> Gatekeeping:
    gatekeeping: Gatekeeping = request.app.state.gatekeeping
    return gatekeeping


Gate = Annotated[Gatekeeping, Depends(_gatekeeping)]


def _state(caller: Caller, session: Session | None) -> SessionState:
    return SessionState(
        name=caller.name,
        role=caller.role.name.lower(),
        session=session is not None,
        csrf=None if session is None else session.csrf,
    )


@router.get("/session", summary="The caller, its role, and its session")
async def get_session(request: Request, gate: Gate, _: Operations) -> SessionState:
    return _state(request.state.caller, gate.sessions.find(request.headers))


@router.post("/session", summary="Log in: open a session with a cookie")
async def log_in(request: Request, response: Response, gate: Gate, _: Operations, login: Login) -> SessionState:
    if login.user is None:
        authorization = f"Bearer {login.token}"
    else:
        authorization = "Basic " + base64.b64encode(f"{login.user}:{login.token}".encode()).decode()
    address = request.client.host if request.client is not None else ""
    try:
        caller = gate.access.caller(address, {"authorization": authorization}, None)
    except BadCredentials as error:
        gate.refusals["credentials"] += 1
        raise Refused(401, str(error)) from None
    except TooManyLogins:
        gate.refusals["logins"] += 1
        raise too_many_logins() from None
    if caller.role is Role.NONE:
        # Not a session: it would have less than the caller's address may have.
        gate.refusals["role"] += 1
        raise Refused(403, f"{caller.name} has no role here: operators may read, and super users may write")
    gate.sessions.close(request.headers)
    session_id, session = gate.sessions.open(caller.name, authorization)
    response.headers["set-cookie"] = set_cookie(session_id, request.url.scheme == "https")
    return _state(caller, session)


@router.delete("/session", status_code=204, summary="Log out: end the session")
async def log_out(request: Request, response: Response, gate: Gate, _: Operations) -> None:
    gate.sessions.close(request.headers)
    response.headers["set-cookie"] = set_cookie("", request.url.scheme == "https")
