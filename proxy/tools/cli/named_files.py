"""The files that settings name, read as a start of the server reads them."""

from collections.abc import Callable, Iterator

from protocol_negotiation.tls import TlsSource, server_context
from protocol_negotiation.tls_client import ClientTlsSource
from protocol_negotiation.tls_files import TlsError, check_readable
from proxy.auth.assembly import authority, grpc_guard
from proxy.auth.sources.source import AuthError
from proxy.operations.token_file import TokenFileError, read_tokens
from proxy.settings.model import Settings
from proxy.settings.naming import naming
from proxy.traffic_rules.parsing import RulesError
from proxy.traffic_rules.reloading import RulesReloader


def problems(settings: Settings) -> Iterator[str]:
    """Yield a text for each named file that cannot be used; it begins with the setting.

    Directories are not created, and a key set at a URL (auth.jwks) is not fetched.
    """
    for check in _CHECKS:
        try:
            check(settings)
        except (AuthError, RulesError, TlsError, TokenFileError) as error:
            yield str(error)


def _check_tls(settings: Settings) -> None:
    if settings.tls.files is not None:
        with naming("tls"):
            TlsSource(settings.tls.files)


def _check_cluster_tls(settings: Settings) -> None:
    if settings.cluster_tls.files is not None:
        with naming("cluster_tls"):
            ClientTlsSource(settings.cluster_tls.files)


def _check_admin_tls(settings: Settings) -> None:
    if settings.admin.files is not None:
        with naming("admin"):
            server_context(settings.admin.files)


def _check_tokens(settings: Settings) -> None:
    if settings.admin.tokens is not None:
        with naming("admin.tokens", TokenFileError):
            read_tokens(settings.admin.tokens)


def _check_descriptors(settings: Settings) -> None:
    with naming("admin.descriptors"):
        for file in settings.admin.descriptors:
            check_readable(file)


def _check_users(settings: Settings) -> None:
    found = authority(settings.auth.model_copy(update={"plain_acl": None}))
    if found is not None and settings.auth.jwks is not None and "://" not in settings.auth.jwks:
        grpc_guard(settings.auth, found)


def _check_plain_acl(settings: Settings) -> None:
    authority(settings.auth.model_copy(update={"users": None}))


def _check_rules(settings: Settings) -> None:
    RulesReloader(settings.rules.file, apply=lambda _: None)


_CHECKS: tuple[Callable[[Settings], None], ...] = (
    _check_tls,
    _check_cluster_tls,
    _check_admin_tls,
    _check_tokens,
    _check_descriptors,
    _check_users,
    _check_plain_acl,
    _check_rules,
)
