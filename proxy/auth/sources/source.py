"""A source of users and policies, and the directory that several sources form."""

from collections.abc import Sequence
from typing import Protocol

from protocol_negotiation.start_error import StartError
from proxy.auth.policy import Directory, Grants, Pattern, Policy, Role, User
from proxy.core.principal import Method, Principal
from remoting.permissions import Action, ResourceKind

_RANKS = (Role.NORMAL, Role.OPERATOR, Role.SUPER)
# All that clients need. Tools need other actions.
_OF_EXEMPT = tuple(
    Policy(
        Pattern(kind, "", prefixed=True),
        frozenset({Action.PUB, Action.SUB}),
        allow=True,
        origin="the address is on a white list of ACL 1.0",
    )
    for kind in (ResourceKind.TOPIC, ResourceKind.GROUP)
)


class AuthError(StartError):
    """Users and policies cannot be loaded; the message names the file and the key, never a secret."""


class Source(Protocol):
    """A source of users and policies.

    name: name in logs and health. directory: the last that was loaded without an error. error: the reason why a later
    one could not be loaded, or None.
    """

    error: str | None

    @property
    def name(self) -> str: ...
    @property
    def directory(self) -> Directory: ...

    async def refresh(self) -> bool:
        """Look for changes; return whether the directory is another one now."""


def find_user(sources: Sequence[Source], name: str) -> User | None:
    """Return a user; the first source that has the name decides."""
    return next((user for source in sources if (user := source.directory.users.get(name)) is not None), None)


def exempts_all(sources: Sequence[Source], host: str) -> bool:
    """Return whether no request from an address needs a credential (globalWhiteRemoteAddresses of ACL 1.0)."""
    return any(source.directory.exempt is not None and source.directory.exempt.cover(host) for source in sources)


def grants(sources: Sequence[Source], principal: Principal) -> Grants:
    """Return the role and the policies of a principal, and of its groups in all sources.

    A user whom no source knows has the grants of the groups that its credential names. A sender that is exempt by its
    address may do what clients do, even if its user may not.
    """
    own = _own_grants(sources, principal)
    if principal.method is not Method.ADDRESS:
        return own
    return Grants(own.role, (*_OF_EXEMPT, *(policy for policy in own.policies if policy.allow)))


def _own_grants(sources: Sequence[Source], principal: Principal) -> Grants:
    user = find_user(sources, principal.user)
    if user is not None and not user.enabled:
        return Grants(Role.NORMAL, ())
    roles = [Role.NORMAL if user is None else user.role]
    policies: list[Policy] = [] if user is None else list(user.policies)
    for name in principal.groups if user is None else principal.groups | user.groups:
        for source in sources:
            group = source.directory.groups.get(name)
            if group is not None:
                roles.append(group.role)
                policies += group.policies
    return Grants(max(roles, key=_RANKS.index), tuple(policies))
