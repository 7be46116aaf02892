"""Credentials of the command line and the doctor: options, environment variables, profiles."""

import argparse
import os
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.tools.credential_options import ACCESS_KEY, PROFILE, PROFILES, SECRET_KEY, SECRET_KEY_FILE, SECURITY_TOKEN
from remoting.signature import Credentials

KEYS = frozenset(
    (
        *("endpoint", "access_key", "secret_key_file", "tls", "ca", "insecure", "client_cert", "client_key"),
        *("admin", "token"),
    )
)
_FILES = ("ca", "secret_key_file", "client_cert", "client_key")
_ADDRESSES = frozenset(("endpoint", "admin"))
_TLS = frozenset(("tls", "ca", "insecure", "client_cert", "client_key"))
_SECRETS = frozenset(("token", "access_key", "secret_key_file"))
# The key of the profiles file that names the current profile, and the variables that override that profile.
CURRENT = "current"
_VARIABLES = {
    "endpoint": "GANTRY_ENDPOINT",
    "admin": "GANTRY_ADMIN",
    "token": "GANTRY_ADMIN_TOKEN",
    "access_key": ACCESS_KEY,
    "secret_key_file": SECRET_KEY_FILE,
}


class CredentialsError(Exception):
    """The credentials are incomplete or cannot be read; the message has no secret."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Defaults of the connection options, from a table of the profiles file. overridden: keys that variables set."""

    values: dict[str, Any]
    overridden: frozenset[str] = frozenset()

    def apply(self, options: argparse.Namespace, default_endpoint: str | None) -> None:
        """Set the options that were not given, and leave out values that are not for the address of the options."""
        excluded = self.overridden | self._excluded(options, default_endpoint)
        values = {name: value for name, value in self.values.items() if name not in excluded}
        if "endpoint" in values and getattr(options, "endpoint", None) == default_endpoint:
            options.endpoint = values["endpoint"]
        for name, value in values.items():
            if hasattr(options, name) and not getattr(options, name):
                setattr(options, name, Path(value) if name in _FILES else value)

    def _excluded(self, options: argparse.Namespace, default_endpoint: str | None) -> frozenset[str]:
        """Return the keys that do not apply because an option or a variable names another address."""
        key = "admin" if hasattr(options, "admin") else "endpoint"
        given = getattr(options, key, None)
        if given in (None, default_endpoint):
            named = key in self.values and key not in self.overridden
            given = None if named else os.environ.get(_VARIABLES[key]) or None
        if given is None or str(given) == self.values.get(key):
            return frozenset()
        bound = _TLS if _ADDRESSES & self.values.keys() else frozenset()
        # The admin API gets secrets as they are; at the endpoint, they only sign requests.
        return bound | _SECRETS if key == "admin" else bound


def read(options: argparse.Namespace, default_endpoint: str | None = None) -> Credentials | None:
    """Return the credentials of the options, after their profile is applied; None without any.

    default_endpoint: the endpoint if none is given; the profile's replaces it. Raises CredentialsError.
    """
    name = options.profile or os.environ.get(PROFILE)
    profile = _profile(name) if name else current_profile()
    if profile is not None:
        profile.apply(options, default_endpoint)
    user = options.access_key or os.environ.get(ACCESS_KEY)
    if not user:
        if options.secret_key_file is not None:
            raise CredentialsError("--secret-key-file needs --access-key")
        return None
    file = options.secret_key_file or os.environ.get(SECRET_KEY_FILE)
    if file:
        try:
            secret = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CredentialsError(f"{file}: {getattr(error, 'strerror', None) or 'not text'}") from None
    else:
        secret = os.environ.get(SECRET_KEY, "")
    if not secret:
        raise CredentialsError(f"the user {user} has no secret key: set --secret-key-file or ${SECRET_KEY}")
    return Credentials(user, secret, os.environ.get(SECURITY_TOKEN) or None)


def rpc_metadata(credentials: Credentials | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata that signs an rpc made now, as the official clients do, with the time in UTC."""
    if credentials is None:
        return ()
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest = credentials.key.digest(date.encode()).hex()
    header = f"MQv2-HMAC-SHA1 Credential={credentials.access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    token = credentials.security_token
    session = () if token is None else (("x-mq-session-token", token),)
    return (("authorization", header), ("x-mq-date-time", date), *session)


def profiles_file() -> Path:
    """Return the path of the profiles file."""
    return Path(os.environ.get(PROFILES) or Path.home() / ".config" / "gantry" / "profiles.toml")


def current_profile() -> Profile | None:
    """Return the profile that `gantry context use` selected; variables override it. None without one.

    Raises CredentialsError.
    """
    if not profiles_file().exists():
        return None
    name = read_profiles().get(CURRENT)
    if not isinstance(name, str):
        return None
    overridden = frozenset(key for key, variable in _VARIABLES.items() if os.environ.get(variable))
    return Profile(_profile(name).values, overridden)


def read_profiles() -> dict[str, Any]:
    """Return the content of the profiles file. Raises CredentialsError."""
    file = profiles_file()
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CredentialsError(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{file}: {error}") from None


def _profile(name: str) -> Profile:
    file = profiles_file()
    profile = read_profiles().get(name)
    if not isinstance(profile, dict):
        raise CredentialsError(f"{file} has no profile {name}")
    unknown = sorted(profile.keys() - KEYS)
    if unknown:
        raise CredentialsError(f"{file}: {name}.{unknown[0]}: there is no such key")
    return Profile(profile)
