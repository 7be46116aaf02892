"""Changes of Gantry's own users file. Comments and the order of the file remain."""

import os
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import AoT, Table

from proxy.auth.policy import Pattern, Role, format_actions, parse_actions
from proxy.auth.sources.own_file import SECRETS, Cipher, UsersFile, decrypted, parse, read
from remoting.permissions import Action

GROUP_PREFIX = "@"
_MODE = 0o600
_SECRET_BYTES = 24


class UsersEditor:
    """The users file as a document. Raises ValueError from all methods, OSError from the constructor and `save`.

    A subject is the name of a user, or `@` and the name of a group. new: the file does not exist. cipher: encrypts all
    secrets of the file.
    """

    def __init__(self, path: Path, *, new: bool = False, cipher: Cipher | None = None) -> None:
        self._path = path
        self._cipher = cipher
        self._former = None if new else path.stat()
        self._document = tomlkit.document() if new else _parse(path)

    @property
    def content(self) -> UsersFile:
        """The validated content."""
        return read(str(self._path), tomlkit.dumps(self._document))

    def has(self, subject: str) -> bool:
        """Return whether there is a user or group."""
        key = "groups" if subject.startswith(GROUP_PREFIX) else "users"
        return subject.removeprefix(GROUP_PREFIX) in self._owners(key)

    def create_user(
        self, name: str, role: Role, groups: Iterable[str], secret: str | None, password: str | None = None
    ) -> str | None:
        """Add a user and return the secret key.

        It is generated if neither it nor the hash of a password is given.
        """
        users = self._owners("users")
        if name in users:
            raise ValueError(f"there is a user {name} already")
        if secret is None and password is None:
            secret = secrets.token_urlsafe(_SECRET_BYTES)
        table = tomlkit.table()
        for key, value in (("secret", secret), ("password", password)):
            if value is not None:
                table[key] = value
        if role is not Role.NORMAL:
            table["role"] = role.value
        if groups := list(groups):
            table["groups"] = groups
        users[name] = table
        return secret

    def create_group(self, name: str, role: Role) -> None:
        """Add a group."""
        groups = self._owners("groups")
        if name in groups:
            raise ValueError(f"there is a group {name} already")
        table = tomlkit.table()
        table["role"] = role.value
        groups[name] = table

    def change_user(self, name: str, changes: Mapping[str, object]) -> None:
        """Set keys of a user, and remove those whose value is None."""
        table = self._owner(name)
        for key, value in changes.items():
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value

    def delete(self, subject: str) -> None:
        """Remove a user or a group."""
        self._owner(subject)
        key = "groups" if subject.startswith(GROUP_PREFIX) else "users"
        self._owners(key).remove(subject.removeprefix(GROUP_PREFIX))

    def grant(
        self, subject: str, actions: Iterable[str], resource: str, *, deny: bool = False, sources: Iterable[str] = ()
    ) -> None:
        """Add a policy."""
        policy = tomlkit.table()
        policy["resources"] = [str(Pattern.parse(resource.strip()))]
        policy["actions"] = format_actions(parse_actions(actions)).split(",")
        if deny:
            policy["effect"] = "deny"
        if sources := list(sources):
            policy["sources"] = sources
        owner = self._owner(subject)
        policies = owner.get("policies")
        if policies is None:
            policies = owner["policies"] = tomlkit.aot()
        if not isinstance(policies, AoT):
            raise ValueError(f"{subject}: policies must be written as [[…policies]]")
        policies.append(policy)

    def revoke(self, subject: str, actions: Iterable[str], resource: str) -> int:
        """Remove actions (none: all) of a resource from the policies; return the number of policies changed."""
        pattern = str(Pattern.parse(resource.strip()))
        removed = parse_actions(actions) if (actions := list(actions)) else frozenset((Action.ANY,))
        policies: Any = self._owner(subject).get("policies")
        changed = 0
        for policy in list(policies or ()):
            resources = _texts(policy["resources"])
            if pattern not in [str(Pattern.parse(text.strip())) for text in resources]:
                continue
            present = parse_actions(_texts(policy["actions"]))
            rest = frozenset() if Action.ANY in removed else _expanded(present) - removed
            if rest == present:
                continue
            changed += 1
            others = [text for text in resources if str(Pattern.parse(text.strip())) != pattern]
            if rest and others:
                raise ValueError(f"the policy about {', '.join(resources)} has several resources: change the file")
            if rest:
                policy["actions"] = format_actions(rest).split(",")
            elif others:
                policy["resources"] = others
            else:
                policies.remove(policy)
        return changed

    def save(self) -> None:
        """Validate and write the file: in one step, so that a reader never sees half of it.

        It keeps its mode, owner and group, as far as this process may set them.
        """
        if self._cipher is not None:
            self._encrypt(self._cipher)
        text = tomlkit.dumps(self._document)
        parse([(str(self._path), text)], self._cipher)
        if self._path.exists() and not self._path.is_file():
            raise ValueError(f"{self._path}: not a regular file")
        # A link stays: the file that it names is replaced.
        target = self._path.resolve()
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                _keep_access(descriptor, self._former)
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            if self._former is None:
                _create(name, target)
            else:
                os.replace(name, target)
        finally:
            Path(name).unlink(missing_ok=True)

    def _encrypt(self, cipher: Cipher) -> None:
        for name, table in self._owners("users").items():
            for key in SECRETS:
                text, place = table.get(key), f"{name}.{key}"
                if isinstance(text, str) and not cipher.is_current(text, place):
                    secret = decrypted(name, key, text, str(self._path), cipher)
                    table[key] = cipher.encrypt(str(secret), place)

    def _owners(self, key: str) -> Any:
        if key not in self._document:
            self._document[key] = tomlkit.table(is_super_table=True)
        return self._document[key]

    def _owner(self, subject: str) -> Table:
        is_group = subject.startswith(GROUP_PREFIX)
        owners, name = self._owners("groups" if is_group else "users"), subject.removeprefix(GROUP_PREFIX)
        if name not in owners:
            raise ValueError(f"there is no {'group' if is_group else 'user'} {name}")
        owner: Table = owners[name]
        return owner


def _parse(path: Path) -> tomlkit.TOMLDocument:
    """Return the document of a file. Raises ValueError that names it, OSError."""
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _keep_access(descriptor: int, former: os.stat_result | None) -> None:
    """Give a file the owner, group and mode of a former one; a group that it cannot be given has no access."""
    if former is None:
        os.fchmod(descriptor, _MODE)
        return
    mode = former.st_mode & 0o777
    try:
        os.fchown(descriptor, former.st_uid, former.st_gid)
    except OSError:
        # Only root may give files away.
        try:
            os.fchown(descriptor, -1, former.st_gid)
        except OSError:
            mode &= ~0o070
    os.fchmod(descriptor, mode)


def _create(written: str, target: Path) -> None:
    """Give a file that was written the name of a new one, but never that of one that exists. Raises ValueError."""
    try:
        os.link(written, target)
    except FileExistsError:
        raise ValueError(f"{target}: another process has created it meanwhile: try again") from None


def _texts(value: object) -> list[str]:
    return [value] if isinstance(value, str) else list(value)  # type: ignore[call-overload]


def _expanded(actions: frozenset[Action]) -> frozenset[Action]:
    """Return the actions that ANY stands for."""
    return frozenset(Action) - {Action.ANY} if Action.ANY in actions else actions
