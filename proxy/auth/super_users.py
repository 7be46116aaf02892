"""Protection of super users: only super users create, change and delete them.

Brokers have the same rule, and judge by the access key in a request. It does not name the sender if that has a client
certificate, or if Gantry signs the request as itself. The embedded broker gets the requests of other workers unnamed.
"""

from collections.abc import Awaitable
from functools import partial

import orjson

from proxy.auth.authority import Authority
from proxy.auth.policy import Role
from proxy.core.context import Context
from proxy.core.handlers import users
from proxy.core.messaging import Handling, Messaging, Serve, served
from proxy.core.own_request import own_request
from remoting import command as commands
from remoting.acl import UserInfo, UserType
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError

_CHANGES = (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_DELETE_USER)
_SUPER = UserType.SUPER.casefold()
_NAMES = frozenset({"username", "password"})


class SuperUsers:
    """Checks requests that change users. handlers: of these requests, for the core."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self.handlers: dict[int, Handling] = {int(code): self.change for code in _CHANGES}

    def change(self, core: Messaging, context: Context, serve: Serve | None = None) -> Awaitable[RemotingCommand]:
        """Check a change of a user, then serve the request (default: send it to all brokers)."""
        return self._change(core, context, partial(users.change, core) if serve is None else serve)

    async def _change(self, core: Messaging, context: Context, serve: Serve) -> RemotingCommand:
        role = self._authority.grants(context.principal).role
        if role is not Role.SUPER and (_makes_super(context) or await _is_super(core, context)):
            return self._refuse(context)
        return await served(serve, context)

    def _refuse(self, context: Context) -> RemotingCommand:
        self._authority.deny(
            context.principal,
            context.channel.protocol,
            context.channel.peer.address.host,
            context.known_spec.name,
            f"the super user {context.fields.get('username', '')}: not a super user's request",
        )
        return commands.response(
            ResponseCode.NO_PERMISSION, remark="a super user can only be created, changed and deleted by a super user"
        )


def _makes_super(context: Context) -> bool:
    """Return whether a request makes its user a super user, by any spelling that Java's parser accepts.

    Java ignores the case of the type by its upper and lower case: to it, U+017F is an s. Raises BodyError.
    """
    if context.code == RequestCode.AUTH_DELETE_USER:
        return False
    try:
        data = orjson.loads(context.command.body)
    except orjson.JSONDecodeError:
        raise BodyError("the body is not the JSON of a user") from None
    if not isinstance(data, dict):
        raise BodyError("the body is not the JSON of a user")
    return any(str(value).strip().casefold() == _SUPER for key, value in data.items() if key not in _NAMES)


async def _is_super(core: Messaging, context: Context) -> bool:
    """Return whether a broker has the request's user as a super user. Raises RemotingError."""
    fields = {"username": context.fields.get("username", "")}
    for broker in await users.brokers(core, context):
        reply = await own_request(core, broker, commands.request(RequestCode.AUTH_GET_USER, fields))
        if reply.code == ResponseCode.NO_PERMISSION:
            # Gantry's own user cannot look it up.
            return True
        if reply.code == ResponseCode.SUCCESS and reply.body and UserInfo.parse(reply.body).user_type is UserType.SUPER:
            return True
    return False
