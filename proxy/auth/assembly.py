"""The authority that the settings describe."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proxy.auth.authority import Authority
from proxy.auth.grpc_guard import ALL_ZONES, GrpcGuard, TokenVerifier
from proxy.auth.sources import own_file
from proxy.auth.sources.files import FileSource
from proxy.auth.sources.own_file import Cipher
from proxy.auth.sources.source import AuthError, Source
from proxy.settings.auth import AuthSettings
from proxy.settings.naming import naming


def authority(
    settings: AuthSettings, more: Sequence[Source] = (), sync_topics: frozenset[str] = frozenset()
) -> Authority | None:
    """Return the authority, or None while authentication is off. Raises AuthError.

    more: sources after those of the settings. sync_topics: as in `Authority`.
    """
    sources: list[Source] = []
    if settings.users is not None:
        cipher = users_cipher(settings.users_key, settings.users_key_file)
        parse = partial(own_file.parse, cipher=cipher)
        with naming("auth.users"):
            sources.append(FileSource("users file", settings.users, parse))
    if settings.plain_acl is not None:
        # The import takes 20 ms.
        from proxy.auth.sources import plain_acl

        with naming("auth.plain_acl"):
            sources.append(FileSource("plain_acl", settings.plain_acl, plain_acl.parse, plain_acl.PATTERNS))
    sources += more
    if not sources:
        return None
    return Authority(
        sources,
        anonymous=settings.anonymous == "allow",
        anonymous_routes=settings.anonymous == "routes",
        sync_topics=sync_topics,
    )


def users_cipher(key: str | None, key_file: Path | None) -> Cipher | None:
    """Return the cipher of the settings auth.users_key and auth.users_key_file; None without either.

    Raises AuthError, which names the setting.
    """
    if key is None and key_file is None:
        return None
    # The import takes 20 ms.
    from proxy.auth import encryption

    try:
        return encryption.read_cipher(key, key_file)
    except ValueError as error:
        raise AuthError(str(error)) from None


def grpc_guard(settings: AuthSettings, authority: Authority) -> GrpcGuard:
    """Return the guard of the gRPC gateway. Raises AuthError."""
    zones = settings.zone_offsets
    return GrpcGuard(
        authority,
        window=settings.date_window,
        zones=ALL_ZONES if zones is None else zones,
        tokens=None if settings.jwks is None else _tokens(settings, authority),
    )


def _tokens(settings: AuthSettings, authority: Authority) -> TokenVerifier:
    try:
        # joserfc is an optional dependency.
        from proxy.auth.tokens import Tokens
    except ModuleNotFoundError:
        raise AuthError("auth.jwks needs the extra: pip install 'rocketmq-gantry[tokens]'") from None
    with naming("auth.jwks"):
        tokens = Tokens(settings)
    authority.refreshers.append(tokens.refresh)
    authority.has_token_key = tokens.has_key
    return tokens
