"""Users and ACLs that brokers keep (ACL 2.0) as a store: the requests AUTH_CREATE_USER to AUTH_LIST_ACL.

Brokers have no groups and no role `operator`. An ACL has one entry for each resource.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence

from proxy.auth.policy import Directory, Pattern, Role, parse_actions, parse_networks
from proxy.auth.sources.broker_lists import Acls, read_acls, read_users
from proxy.auth.sources.brokers import directory
from proxy.auth.stores.store import (
    GROUP_PREFIX,
    SECRET_BYTES,
    Grant,
    NewUser,
    NotInStore,
    PolicyEntry,
    StoreError,
    UserChange,
    UserEntry,
    action_names,
)
from remoting import acl
from remoting.acl import AclInfo, Decision, PolicyType, UserInfo, UserStatus, UserType
from remoting.acl import PolicyEntry as AclEntry
from remoting.codes import RequestCode
from remoting.permissions import Action

# Sends a request with ext fields and a body, and returns the body of the response. Raises RemotingError or StoreError.
Ask = Callable[[RequestCode, Mapping[str, str], bytes], Awaitable[bytes]]

_NO_PASSWORDS = "brokers keep no hashed passwords; only Gantry's own users file does"
_NO_TOKENS = "brokers keep no security tokens; only Gantry's own users file does"
_NO_EXPIRY = "brokers' users do not expire; only those of Gantry's own users file do"
_ROLES = {Role.NORMAL: UserType.NORMAL, Role.SUPER: UserType.SUPER}


class BrokersStore:
    """Users and policies of the brokers that `ask` reaches."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def users(self) -> list[UserEntry]:
        """Return all users."""
        users, acls = await self._read_users(), await self._read_acls()
        counts = {info.username: sum(map(len, info.policies.values())) for info in acls.infos}
        return [
            UserEntry(
                user.username,
                Role.SUPER if user.user_type is UserType.SUPER else Role.NORMAL,
                (),
                user.user_status is not UserStatus.DISABLE and user.username not in acls.denied,
                counts.get(user.username, 0),
            )
            for user in sorted(users, key=lambda user: user.username)
        ]

    async def policies(self, subject: str | None = None) -> list[PolicyEntry]:
        """Return the policies of all users, or of one."""
        if subject is not None:
            await self._user(subject)
        acls = sorted((await self._read_acls()).infos, key=lambda info: info.subject)
        return [
            _entry(info.username or info.subject, kind, entry)
            for info in acls
            if subject in (None, info.username)
            for kind, entries in info.policies.items()
            for entry in entries
        ]

    async def directory(self) -> Directory:
        """Return the users and policies as decisions use them."""
        users, acls = await self._read_users(), await self._read_acls()
        return directory(users, acls.infos, acls.denied)

    async def create(self, user: NewUser) -> str | None:
        """Create a user."""
        secret = secrets.token_urlsafe(SECRET_BYTES) if user.secret is None else user.secret
        if user.password is not None:
            raise StoreError(_NO_PASSWORDS)
        if user.security_token is not None:
            raise StoreError(_NO_TOKENS)
        if user.expires is not None:
            raise StoreError(_NO_EXPIRY)
        if user.name.startswith(GROUP_PREFIX) or user.groups:
            raise StoreError("brokers keep no groups; only Gantry's own users file does")
        info = UserInfo(user.name, secret, _user_type(user.role), UserStatus.ENABLE)
        await self._ask(RequestCode.AUTH_CREATE_USER, {"username": user.name}, acl.encode(info.to_json()))
        return secret if user.secret is None else None

    async def update(self, name: str, change: UserChange) -> None:
        """Change a user."""
        if change.password is not None:
            raise StoreError(_NO_PASSWORDS)
        if change.security_token is not None:
            raise StoreError(_NO_TOKENS)
        if change.expires is not None:
            raise StoreError(_NO_EXPIRY)
        if change.groups is not None:
            raise StoreError("brokers keep no groups; only Gantry's own users file does")
        await self._user(name)
        status = None
        if change.enabled is not None:
            status = UserStatus.ENABLE if change.enabled else UserStatus.DISABLE
        info = UserInfo(name, change.secret or "", None if change.role is None else _user_type(change.role), status)
        await self._ask(RequestCode.AUTH_UPDATE_USER, {"username": name}, acl.encode(info.to_json()))

    async def delete(self, subject: str) -> None:
        """Delete a user; its ACL is deleted with it."""
        await self._user(subject)
        await self._ask(RequestCode.AUTH_DELETE_USER, {"username": subject}, b"")

    async def grant(self, subject: str, grant: Grant) -> None:
        """Add a policy, or add actions to the one on the same resource."""
        await self._user(subject)
        try:
            pattern, actions = Pattern.parse(grant.resource), parse_actions(grant.actions)
            parse_networks(grant.sources)
        except ValueError as error:
            raise StoreError(str(error)) from None
        decision = Decision.DENY if grant.deny else Decision.ALLOW
        present = await self._custom(subject, pattern)
        if present is not None:
            if present.decision is not decision or set(present.source_ips) != set(grant.sources):
                raise StoreError(
                    f"the brokers keep one entry for a resource, and {subject} has another one on {pattern}: revoke it"
                )
            actions |= parse_actions(present.actions)
        await self._put(subject, AclEntry(str(pattern), action_names(actions), decision, grant.sources))

    async def revoke(self, subject: str, actions: Sequence[str], resource: str) -> None:
        """Remove actions of a resource."""
        await self._user(subject)
        try:
            pattern = Pattern.parse(resource)
            removed = parse_actions(actions) if actions else frozenset((Action.ANY,))
        except ValueError as error:
            raise StoreError(str(error)) from None
        entry = await self._custom(subject, pattern)
        present = frozenset() if entry is None else parse_actions(entry.actions)
        if Action.ANY in present:
            present = frozenset(Action) - {Action.ANY}
        rest = frozenset() if Action.ANY in removed else present - removed
        if entry is None or rest == present:
            raise NotInStore(f"{subject} has no such policy on {resource}")
        if rest:
            await self._put(subject, AclEntry(entry.resource, action_names(rest), entry.decision, entry.source_ips))
            return
        fields = {"subject": acl.USER_PREFIX + subject, "policyType": PolicyType.CUSTOM, "resource": entry.resource}
        await self._ask(RequestCode.AUTH_DELETE_ACL, fields, b"")

    async def _put(self, subject: str, entry: AclEntry) -> None:
        info = AclInfo(acl.USER_PREFIX + subject, {PolicyType.CUSTOM: (entry,)})
        has_acl = any(known.username == subject for known in (await self._read_acls()).infos)
        code = RequestCode.AUTH_UPDATE_ACL if has_acl else RequestCode.AUTH_CREATE_ACL
        await self._ask(code, {"subject": info.subject}, acl.encode(info.to_json()))

    async def _custom(self, subject: str, pattern: Pattern) -> AclEntry | None:
        """Return the entry of a user's custom policy on a resource."""
        for info in (await self._read_acls()).infos:
            if info.username == subject:
                for entry in info.policies.get(PolicyType.CUSTOM, ()):
                    if _resource(entry) == str(pattern):
                        return entry
        return None

    async def _user(self, name: str) -> UserInfo:
        for user in await self._read_users():
            if user.username == name:
                return user
        raise NotInStore(f"there is no user {name}")

    async def _read_users(self) -> list[UserInfo]:
        return read_users(await self._ask(RequestCode.AUTH_LIST_USER, {}, b""))

    async def _read_acls(self) -> Acls:
        return read_acls(await self._ask(RequestCode.AUTH_LIST_ACL, {}, b""))


def _entry(user: str, kind: PolicyType, entry: AclEntry) -> PolicyEntry:
    return PolicyEntry(
        user,
        entry.decision.lower(),
        action_names(parse_actions(entry.actions)),
        (_resource(entry),),
        entry.source_ips,
        default=kind is PolicyType.DEFAULT,
    )


def _resource(entry: AclEntry) -> str:
    return "*" if entry.resource.startswith("Any:") else entry.resource


def _user_type(role: Role) -> UserType:
    if role not in _ROLES:
        raise StoreError(f"brokers have no role {role}: normal or super")
    return _ROLES[role]
