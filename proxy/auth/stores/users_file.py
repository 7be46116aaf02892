"""The users file as a store."""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from proxy.auth.passwords import hash_password
from proxy.auth.policy import Directory, parse_actions
from proxy.auth.sources.own_file import Cipher, PolicyTable, parse
from proxy.auth.sources.users_editor import UsersEditor
from proxy.auth.stores.file_lock import locked
from proxy.auth.stores.store import (
    GROUP_PREFIX,
    Grant,
    NewUser,
    NotInStore,
    PolicyEntry,
    StoreError,
    UserChange,
    UserEntry,
    action_names,
)


class UsersFileStore:
    """Users and policies of Gantry's own file. Its methods also raise OSError. cipher: of the secrets in it."""

    def __init__(self, path: Path, cipher: Cipher | None = None) -> None:
        self._path = path
        self._cipher = cipher

    async def users(self) -> list[UserEntry]:
        """Return all users, and then all groups."""
        with self._open() as editor:
            content = editor.content
        now = time.time()
        users = [
            UserEntry(
                name,
                user.role,
                tuple(user.groups),
                user.enabled and user.expiry > now,
                len(user.policies),
                None if user.expires is None else user.expires.isoformat(),
            )
            for name, user in sorted(content.users.items())
        ]
        return users + [
            UserEntry(f"{GROUP_PREFIX}{name}", group.role, (), True, len(group.policies))
            for name, group in sorted(content.groups.items())
        ]

    async def policies(self, subject: str | None = None) -> list[PolicyEntry]:
        """Return the policies of all users and groups, or of one."""
        with self._open() as editor:
            content = editor.content
        owners = {
            **dict(sorted(content.users.items())),
            **{f"{GROUP_PREFIX}{name}": group for name, group in sorted(content.groups.items())},
        }
        if subject is not None and subject not in owners:
            raise NotInStore(_missing(subject))
        return [
            _entry(name, policy)
            for name, owner in owners.items()
            if subject in (None, name)
            for policy in owner.policies
        ]

    async def directory(self) -> Directory:
        """Return the users and policies as decisions use them."""
        with self._open():
            return parse([(str(self._path), self._path.read_text(encoding="utf-8"))], self._cipher)

    async def create(self, user: NewUser) -> str | None:
        """Create a user or group, and the file if it is missing."""
        password = None if user.password is None else hash_password(user.password)
        async with self._editing(create=True) as editor:
            if user.name.startswith(GROUP_PREFIX):
                editor.create_group(user.name.removeprefix(GROUP_PREFIX), user.role)
                secret = None
            else:
                secret = editor.create_user(user.name, user.role, user.groups, user.secret, password)
                added = {"security_token": user.security_token, "expires": user.expires}
                editor.change_user(user.name, {key: value for key, value in added.items() if value is not None})
        return secret if user.secret is None else None

    async def update(self, name: str, change: UserChange) -> None:
        """Change a user."""
        changes: dict[str, object] = {}
        if change.role is not None:
            changes["role"] = change.role.value
        if change.groups is not None:
            changes["groups"] = list(change.groups)
        if change.enabled is not None:
            changes["enabled"] = change.enabled
        if change.secret is not None:
            changes["secret"] = change.secret
        if change.password is not None:
            changes["password"] = hash_password(change.password)
        if change.security_token is not None:
            changes["security_token"] = change.security_token or None
        if change.expires is not None:
            changes["expires"] = change.expires or None
        async with self._changed(name) as editor:
            editor.change_user(name, changes)

    async def delete(self, subject: str) -> None:
        """Delete a user or group."""
        async with self._changed(subject) as editor:
            editor.delete(subject)

    async def grant(self, subject: str, grant: Grant) -> None:
        """Add a policy."""
        async with self._changed(subject) as editor:
            editor.grant(subject, grant.actions, grant.resource, deny=grant.deny, sources=grant.sources)

    async def revoke(self, subject: str, actions: Sequence[str], resource: str) -> None:
        """Remove actions of a resource."""
        async with self._changed(subject) as editor:
            if not editor.revoke(subject, actions, resource):
                raise NotInStore(f"{subject} has no such policy on {resource}")

    @asynccontextmanager
    async def _changed(self, subject: str) -> AsyncIterator[UsersEditor]:
        async with self._editing() as editor:
            if not editor.has(subject):
                raise NotInStore(_missing(subject))
            yield editor

    @asynccontextmanager
    async def _editing(self, *, create: bool = False) -> AsyncIterator[UsersEditor]:
        """Yield an editor and save it. No other process changes the file meanwhile: its change would be lost."""
        async with locked(self._path) as exists:
            with self._open(new=create and not exists) as editor:
                yield editor
                editor.save()

    @contextmanager
    def _open(self, *, new: bool = False) -> Iterator[UsersEditor]:
        try:
            yield UsersEditor(self._path, new=new, cipher=self._cipher)
        except ValueError as error:
            raise StoreError(str(error)) from None


def _missing(subject: str) -> str:
    kind = "group" if subject.startswith(GROUP_PREFIX) else "user"
    return f"there is no {kind} {subject.removeprefix(GROUP_PREFIX)}"


def _entry(name: str, policy: PolicyTable) -> PolicyEntry:
    actions = action_names(parse_actions(policy.actions))
    return PolicyEntry(name, policy.effect, actions, tuple(policy.resources), tuple(policy.sources))
