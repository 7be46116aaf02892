"""Gantry's own users file (TOML).

    [users.alice]
    secret = "…"                      # of the signatures of clients
    security_token = "…"              # optional: that of temporary credentials, which clients send beside
    expires = 2030-01-31T12:00:00Z    # optional: when the user is disabled
    password = "scrypt:…"             # optional: hash of a password for the HTTP API
    groups = ["billing"]

    [[users.alice.policies]]
    resources = ["Topic:orders", "Group:billing-*"]
    actions = ["Pub", "Sub"]

    [[groups.billing.policies]]
    …

A policy may also have `effect = "deny"` and `sources`, networks. `secret` and `security_token` may be encrypted
(`proxy.auth.encryption`).
"""

import math
import time
import tomllib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Protocol

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from proxy.auth.certificates import canonical_name
from proxy.auth.passwords import PasswordHash
from proxy.auth.policy import (
    Directory,
    Group,
    Pattern,
    Policy,
    Role,
    User,
    parse_actions,
    parse_networks,
)
from proxy.settings.fault_text import fault_text
from remoting.signature import SecretKey

# RocketMQ's own limit is six characters.
MIN_SECRET_LENGTH = 6
# Keys of a user whose values may be encrypted, and the beginning of such values.
SECRETS = ("secret", "security_token")
ENCRYPTED = "aes256gcm:"
USER_NAME = r"^[A-Za-z0-9_.@-]{1,128}$"


def _texts(value: object) -> object:
    return [value] if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(_texts)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PolicyTable(_Table):
    """A policy: its actions on each of its resources."""

    resources: Texts = Field(min_length=1)
    actions: Texts = Field(min_length=1)
    effect: Literal["allow", "deny"] = "allow"
    sources: Texts = Field([])

    @field_validator("resources")
    @classmethod
    def _check_resources(cls, texts: list[str]) -> list[str]:
        for text in texts:
            Pattern.parse(text.strip())
        return texts

    @field_validator("actions")
    @classmethod
    def _check_actions(cls, texts: list[str]) -> list[str]:
        parse_actions(texts)
        return texts

    @field_validator("sources")
    @classmethod
    def _check_sources(cls, texts: list[str]) -> list[str]:
        parse_networks(texts)
        return texts

    def policies(self, origin: str) -> Iterable[Policy]:
        """Yield the policy of each resource."""
        for resource in self.resources:
            yield Policy(
                Pattern.parse(resource.strip()),
                parse_actions(self.actions),
                self.effect == "allow",
                parse_networks(self.sources),
                origin=origin,
            )


class _Owner(_Table):
    role: Role = Role.NORMAL
    policies: list[PolicyTable] = Field([])


class UserTable(_Owner):
    """A user."""

    secret: str | None = Field(None, repr=False, min_length=MIN_SECRET_LENGTH)
    security_token: str | None = Field(None, repr=False, min_length=MIN_SECRET_LENGTH)
    password: str | None = Field(None, repr=False)
    groups: Texts = Field([])
    enabled: bool = True
    expires: AwareDatetime | None = None
    certificates: Texts = Field([])

    @field_validator("password")
    @classmethod
    def _check_password(cls, text: str | None) -> str | None:
        if text is not None:
            PasswordHash(text)
        return text

    @property
    def expiry(self) -> float:
        """When the user expires, in seconds since 1970."""
        return math.inf if self.expires is None else self.expires.timestamp()


class UsersFile(_Table):
    """The users file."""

    users: dict[Annotated[str, Field(pattern=USER_NAME)], UserTable] = Field({})
    groups: dict[Annotated[str, Field(pattern=USER_NAME)], _Owner] = Field({})


class Cipher(Protocol):
    """Encrypts and decrypts secrets in the file. place: the secret's key there, such as `alice.secret`."""

    def encrypt(self, secret: str, place: str) -> str:
        """Return the text for the file."""

    def decrypt(self, text: str, place: str) -> str:
        """Return the secret. Raises ValueError without it."""

    def is_current(self, text: str, place: str) -> bool:
        """Return whether a text of the file is encrypted as `encrypt` does it now."""


def parse(texts: list[tuple[str, str]], cipher: Cipher | None = None) -> Directory:
    """Return the directory of users files, given by name and text. Raises ValueError without any secret."""
    users: dict[str, User] = {}
    groups: dict[str, Group] = {}
    for file, text in texts:
        content = read(file, text)
        groups |= {
            name: Group(name=name, role=table.role, policies=_policies(table, f"{file}: groups.{name}"))
            for name, table in content.groups.items()
        }
        users |= {name: _user(name, table, file, cipher) for name, table in content.users.items()}
    unknown = {(user.name, group) for user in users.values() for group in user.groups - groups.keys()}
    for user_name, group_name in sorted(unknown):
        raise ValueError(f"{users[user_name].origin}: users.{user_name}: there is no group {group_name!r}")
    return Directory(users, groups).at(time.time())


def read(file: str, text: str) -> UsersFile:
    """Return the content of a users file. Raises ValueError without any secret."""
    try:
        return UsersFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {error}") from None
    except ValidationError as error:
        raise ValueError("\n".join(f"{file}: {_describe(item)}" for item in error.errors())) from None


def _describe(error: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in error["loc"])
    reason = {"extra_forbidden": "there is no such key"}.get(error["type"]) or fault_text(error)
    return f"{key}: {reason}"


def _policies(table: _Owner, origin: str) -> tuple[Policy, ...]:
    return tuple(policy for item in table.policies for policy in item.policies(origin))


def _user(name: str, table: UserTable, file: str, cipher: Cipher | None) -> User:
    secret, security_token = (decrypted(name, key, getattr(table, key), file, cipher) for key in SECRETS)
    return User(
        name=name,
        key=None if secret is None else SecretKey(secret),
        security_token=security_token,
        password=None if table.password is None else PasswordHash(table.password),
        role=table.role,
        groups=frozenset(table.groups),
        enabled=table.enabled,
        expires=table.expiry,
        policies=_policies(table, f"{file}: users.{name}"),
        certificates=tuple(map(canonical_name, table.certificates)),
        origin=file,
    )


def decrypted(name: str, key: str, text: str | None, file: str, cipher: Cipher | None) -> str | None:
    """Return the value of a user's key that may be encrypted. Raises ValueError."""
    if text is None or not text.startswith(ENCRYPTED):
        return text
    if cipher is None:
        raise ValueError(f"{file}: users.{name}.{key}: it is encrypted: set auth.users_key_file to the file of its key")
    try:
        return cipher.decrypt(text, f"{name}.{key}")
    except ValueError as error:
        raise ValueError(f"{file}: users.{name}.{key}: {error}") from None
