"""The authority that the settings describe."""

from collections.abc import Sequence

from proxy.auth.authority import Authority
from proxy.auth.grpc_guard import ALL_ZONES, GrpcGuard, TokenVerifier
from proxy.auth.sources import own_file
from proxy.auth.sources.files import FileSource
from proxy.auth.sources.source import AuthError, Source
from proxy.settings.auth import AuthSettings


def authority(settings: AuthSettings, more: Sequence[Source] = ()) -> Authority | None:
    """Return the authority, or None while authentication is off. Raises AuthError.

    more: sources after those of the settings.
    """
    sources: list[Source] = []
    if settings.users is not None:
        sources.append(FileSource("users file", settings.users, own_file.parse))
    if settings.plain_acl is not None:
        # The import takes 20 ms.
        from proxy.auth.sources import plain_acl

        sources.append(FileSource("plain_acl", settings.plain_acl, plain_acl.parse, plain_acl.PATTERNS))
    sources += more
    if not sources:
        return None
    return Authority(sources, anonymous=settings.anonymous == "allow", anonymous_routes=settings.anonymous == "routes")


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
    tokens = Tokens(settings)
    authority.refreshers.append(tokens.refresh)
    return tokens
