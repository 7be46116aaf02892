"""Settings of authentication and authorization (table `auth`)."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_settings import NoDecode

from proxy.settings.field_types import SettingsTable, TopicName, split_list
from remoting import names

_ZONE = re.compile(r"([+-])(\d{2}):(\d{2})")
ANY_ZONE = "any"


def _zones(texts: list[str]) -> list[str]:
    for text in texts:
        if text != ANY_ZONE and not _ZONE.fullmatch(text):
            raise ValueError(f"a time zone is +HH:MM, -HH:MM or {ANY_ZONE}, not {text!r}")
    return texts


Texts = Annotated[list[str], BeforeValidator(split_list(";,")), NoDecode]


class AuthSettings(SettingsTable):
    """Users and policies of the clients' listeners. Authentication is on if there is a source of users."""

    users: Path | None = Field(None, description="file with users, groups and policies (TOML), reloaded on change")
    users_key: str | None = Field(
        None,
        repr=False,
        description="key of the encrypted secrets in users: 32 bytes in base64; of several keys, one per line, the "
        "first encrypts and all decrypt",
    )
    users_key_file: Path | None = Field(None, description="file with the key or keys; replaces users_key")
    plain_acl: Path | None = Field(
        None, description="plain_acl.yml of ACL 1.0, or a directory of such files, read as it is; reloaded on change"
    )
    brokers: bool = Field(
        False,
        description="use the users and ACLs that the brokers keep (ACL 2.0); before a cluster, cluster.access_key must "
        "be of type Super. A user of the files has precedence over one with the same name",
    )
    brokers_interval: float = Field(
        2.0, gt=0, description="seconds between loads of the brokers' users and ACLs, at least reload_interval"
    )
    anonymous: Literal["deny", "routes", "allow"] = Field(
        "deny",
        description="requests without a credential: deny; routes: serve only routes of topics over remoting, as name "
        "servers do, because the Go client's pull consumer never signs these requests; allow: the user `anonymous` of "
        "the users file sends them or, without any source of users, everyone may do everything on every listener",
    )
    reload_interval: float = Field(1.0, gt=0, description="seconds between checks of users and policies for changes")
    date_window: float = Field(
        300.0, gt=0, description="seconds by which the signed time of a gRPC request may differ from this host's clock"
    )
    date_zones: Annotated[Texts, AfterValidator(_zones)] = Field(
        [ANY_ZONE],
        min_length=1,
        description="time zones in which gRPC clients write that time, such as +08:00; any: all. The fewer zones, the "
        "less often an intercepted signature is valid again",
    )
    jwks: str | None = Field(
        None, description="file or https URL of the JWK set that verifies bearer tokens (JWT) of gRPC clients"
    )
    jwks_interval: float = Field(60.0, gt=0, description="seconds between loads of the JWK set")
    token_issuer: str | None = Field(None, description="required issuer of tokens; default: any")
    token_audience: str | None = Field(None, description="required audience of tokens; default: any")
    token_user: str = Field("sub", min_length=1, description="claim with the user")
    token_groups: str = Field("groups", min_length=1, description="claim with the user's groups, a list or a text")
    audit: Path | None = Field(
        None, description="file of the audit log, with denied requests and changes; default: only the log"
    )
    audit_size: int = Field(64 * 2**20, ge=2**16, description="size in bytes at which the audit file is rotated")
    audit_files: int = Field(8, ge=1, description="rotated audit files that are kept")
    audit_topic: TopicName | None = Field(
        None, description="existing topic that gets each line of the audit log as a message; default: none"
    )

    @field_validator("jwks")
    @classmethod
    def _check_jwks(cls, text: str | None) -> str | None:
        if text is not None and "://" in text and not text.startswith("https://"):
            raise ValueError(f"the URL of a JWK set begins with https://, not {text[:40]!r}")
        return text

    @field_validator("audit_topic")
    @classmethod
    def _check_audit_topic(cls, topic: str | None) -> str | None:
        if topic is not None and names.is_system(topic):
            raise ValueError(f"{topic} is a system topic of brokers")
        return topic

    @model_validator(mode="after")
    def _check_sources(self) -> "AuthSettings":
        if self.jwks is not None and self.users is None:
            raise ValueError("jwks needs users: the file has the policies of the tokens' users and groups")
        if self.users is None and (self.users_key is not None or self.users_key_file is not None):
            raise ValueError("users_key and users_key_file need users: they are for the secrets in that file")
        return self

    @property
    def enabled(self) -> bool:
        """Whether there is a source of users."""
        return self.users is not None or self.plain_acl is not None or self.brokers

    @property
    def zone_offsets(self) -> Iterable[int] | None:
        """The offsets of the time zones from UTC in seconds; None for all."""
        if ANY_ZONE in self.date_zones:
            return None
        return [_offset(text) for text in self.date_zones]


def _offset(text: str) -> int:
    match = _ZONE.fullmatch(text)
    assert match is not None
    seconds = int(match[2]) * 3600 + int(match[3]) * 60
    return -seconds if match[1] == "-" else seconds
