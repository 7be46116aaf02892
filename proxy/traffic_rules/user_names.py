"""Rewriting of names on a connection whose user chooses them: the rules about namespaces and aliases have `users`."""

from collections.abc import Callable

from proxy.core.channel import Channel
from proxy.core.principal import Principal
from proxy.traffic_rules.name_mapping import NameMapping
from proxy.traffic_rules.name_rewriting import Handler, NameRewriting
from remoting.command import RemotingCommand
from remoting.errors import NotPermitted, UnsupportedRequest
from remoting.outcomes import Reply
from remoting.requests import REQUESTS

# Name mappings of a user; None for a sender that is not authenticated.
NamesOfUser = Callable[[str | None], NameMapping | None]

# Users of one connection whose mappings are remembered.
_MAX_USERS = 16


class UserNames:
    """Rewrites names as `NameRewriting` does, by the mapping of the first authenticated user.

    Requests of users with another mapping are rejected: pushes and memberships of the connection have the first one's
    names. Requests without a valid credential have the mapping of the connection, before that one that names no user.
    """

    def __init__(self, names_of: NamesOfUser) -> None:
        self._names_of = names_of
        self._mappings: dict[str | None, NameMapping | None] = {}
        self._bound = False
        self._rewriting: NameRewriting | None = None

    def names_of(self, principal: Principal) -> NameMapping | None:
        """Return the name mapping of a request's sender; None if it uses the brokers' names."""
        rewriting = self._current(principal)
        return None if rewriting is None else rewriting.names

    def serve(self, handle: Handler, channel: Channel, command: RemotingCommand) -> Reply | None:
        """Serve a client's request under the brokers' names. Raises RemotingError."""
        principal = channel.principal
        if principal.failure is None:
            self._bind(principal.user)
        rewriting = self._current(principal)
        if rewriting is None:
            return handle(channel, command)
        if command.code not in REQUESTS:
            # The embedded broker's own listener serves further codes, with names that cannot be rewritten.
            raise UnsupportedRequest(
                f"request {command.code} is not supported for clients with a namespace or topic aliases"
            )
        return rewriting.serve(handle, channel, command)

    def rewrite_push(self, command: RemotingCommand) -> RemotingCommand:
        """Return a request to the client with the client's names; see `NameRewriting`."""
        return command if self._rewriting is None else self._rewriting.rewrite_push(command)

    def rewrite_push_reply(self, code: int, reply: Reply) -> None:
        """Replace the names in the client's reply to a push by the brokers': done callback of the reply."""
        if self._rewriting is not None:
            self._rewriting.rewrite_push_reply(code, reply)

    def _current(self, principal: Principal) -> NameRewriting | None:
        if principal.failure is None or self._bound:
            return self._rewriting
        return _rewriting(self._mapping(None))

    def _bind(self, user: str) -> None:
        """Make a user's mapping that of the connection. Raises NotPermitted if the connection has another one."""
        names = self._mapping(user)
        if not self._bound:
            self._bound, self._rewriting = True, _rewriting(names)
        elif names != (None if self._rewriting is None else self._rewriting.names):
            raise NotPermitted(
                f"this connection has the namespace and aliases of another user than {user}: use another connection"
            )

    def _mapping(self, user: str | None) -> NameMapping | None:
        if user not in self._mappings:
            if len(self._mappings) >= _MAX_USERS:
                self._mappings.clear()
            self._mappings[user] = self._names_of(user)
        return self._mappings[user]


def _rewriting(names: NameMapping | None) -> NameRewriting | None:
    return None if names is None else NameRewriting(names)
