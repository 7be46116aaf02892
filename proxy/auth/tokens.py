"""Bearer tokens: JWTs (RFC 7519) that are signed with a key of a JWK set (RFC 7517), from a file or a URL."""

import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio.to_thread
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import GuestProtocol, Key, KeySet, guess_key
from joserfc.jwt import ClaimsOption

from proxy.auth.grpc_guard import VerifiedToken
from proxy.auth.sources.source import AuthError
from proxy.settings.auth import AuthSettings
from proxy.settings.secret_files import check_writers

_log = logging.getLogger("gantry.auth")

# Asymmetric only: with a symmetric algorithm everyone with the key could sign.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
_MAX_TOKEN = 8 * 1024
_MAX_KEYS = 256 * 1024
# Seconds for a response of the URL, and seconds by which clocks may differ.
_TIMEOUT = 5.0
_LEEWAY = 30
_MAX_GROUPS = 256


class Tokens:
    """Verifies tokens; implements `proxy.auth.grpc_guard.TokenVerifier`. Raises AuthError from the constructor.

    error: the reason why the keys could not be loaded again; the former keys remain in use.
    """

    def __init__(self, settings: AuthSettings, clock: Callable[[], float] = time.time) -> None:
        assert settings.jwks is not None
        self.error: str | None = None
        self._place = settings.jwks
        self._interval = settings.jwks_interval
        self._user_claim = settings.token_user
        self._groups_claim = settings.token_groups
        self._clock = clock
        expected = {"iss": settings.token_issuer, "aud": settings.token_audience}
        self._options: dict[str, ClaimsOption] = {
            name: {"essential": True, "value": value} for name, value in expected.items() if value
        }
        self._loaded_at = clock()
        self._text = ""
        self._keys = self._load()
        if not self._keys.keys:
            raise AuthError(f"{self._place}: not a JWK set with a usable key")

    def verify(self, token: str) -> VerifiedToken | None:
        """Return a token's content; None if it is not valid now."""
        if len(token) > _MAX_TOKEN:
            return None
        now = int(self._clock())
        # One set, also while another is loaded.
        keys = self._keys
        used: list[Key] = []

        def find_key(header: GuestProtocol) -> Key:
            used.append(guess_key(keys, header, use="sig"))
            return used[0]

        try:
            claims = jwt.decode(token, find_key, algorithms=_ALGORITHMS).claims
            jwt.JWTClaimsRegistry(now=now, leeway=_LEEWAY, exp={"essential": True}, **self._options).validate(claims)
            expires_at = float(claims["exp"]) + _LEEWAY
        except (JoseError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None
        user, groups = claims.get(self._user_claim), claims.get(self._groups_claim, [])
        if isinstance(groups, str):
            groups = groups.split()
        # Halves of surrogate pairs are not printable.
        if not isinstance(user, str) or not user or not user.isprintable():
            return None
        if not isinstance(groups, list) or len(groups) > _MAX_GROUPS:
            return None
        names = frozenset(group for group in groups if isinstance(group, str))
        return VerifiedToken(user, names, expires_at, used[0].thumbprint())

    def has_key(self, thumbprint: str) -> bool:
        """Return whether a key, given by its thumbprint (RFC 7638), is in the current set."""
        return thumbprint in self._thumbprints

    async def refresh(self) -> bool:
        """Load the keys again if it is time; return whether they have changed."""
        if self._clock() - self._loaded_at < self._interval:
            return False
        self._loaded_at = self._clock()
        text = self._text
        try:
            self._keys = await anyio.to_thread.run_sync(self._load)
        except AuthError as error:
            if str(error) != self.error:
                _log.error("the keys of tokens cannot be loaded, the former remain in use: %s", error)
            self.error = str(error)
            return False
        self.error = None
        return self._text != text

    def _load(self) -> KeySet:
        try:
            text = self._read()
        except OSError as error:
            raise AuthError(f"{self._place}: {getattr(error, 'reason', None) or error.strerror or error}") from None
        except UnicodeDecodeError:
            raise AuthError(f"{self._place}: not a JWK set") from None
        except ValueError as error:
            raise AuthError(str(error)) from None
        try:
            entries = json.loads(text)["keys"]
            keys = _import_keys(entries)
        except (JoseError, ValueError, TypeError, KeyError, RecursionError):
            raise AuthError(f"{self._place}: not a JWK set") from None
        if text != self._text and (ignored := len(entries) - len(keys.keys)):
            _log.warning("%s: %d keys of unknown types are ignored", self._place, ignored)
        if text != self._text and not keys.keys:
            # The last key has been removed, perhaps because it is known to others: the former must not remain in use.
            _log.error("%s has no usable key: all bearer tokens are rejected", self._place)
        self._text = text
        self._thumbprints = frozenset(key.thumbprint() for key in keys)
        return keys

    def _read(self) -> str:
        """Return the text of the JWK set. Raises OSError; ValueError for a file that others can change."""
        if self._place.startswith("https://"):
            with _opener.open(self._place, timeout=_TIMEOUT) as response:
                return bytes(response.read(_MAX_KEYS)).decode()
        file = Path(self._place)
        check_writers(file)
        return file.read_text(encoding="utf-8")


def _import_keys(entries: Any) -> KeySet:
    """Return the keys of a JWK set without those of unknown types, which RFC 7517 (section 5) has readers ignore.

    Raises ValueError for anything else than a list of objects.
    """
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("no keys")
    keys: list[Key] = []
    for entry in entries:
        with suppress(JoseError, ValueError, TypeError, KeyError, AttributeError):
            keys += KeySet.import_key_set({"keys": [entry]}).keys
    return KeySet(keys)


class _RefuseDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https only: anyone on the way could replace keys that arrive in plain text."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not newurl.startswith("https://"):
            raise urllib.error.URLError("redirected to a URL without https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_opener = urllib.request.build_opener(_RefuseDowngrade)
