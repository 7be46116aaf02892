"""The files that settings name, read as a start of the server reads them."""

from collections.abc import Callable, Iterator
from typing import Any

from protocol_negotiation.start_error import StartError
from protocol_negotiation.tls import TlsSource, server_context
from protocol_negotiation.tls_client import ClientTlsSource
from protocol_negotiation.tls_files import check_readable
from proxy.auth.assembly import authority, grpc_guard
from proxy.operations.token_file import read_tokens
from proxy.settings.model import Settings
from proxy.settings.naming import naming
from proxy.traffic_rules.reloading import RulesReloader


def problems(settings: Settings) -> Iterator[str]:
    """Yield a text for each setting or table whose files cannot be used; it begins with its key.

    Directories are not created, and a key set at a URL (auth.jwks) is not fetched.
    """
    for check in _CHECKS:
        try:
            check(settings)
        except StartError as error:
            yield str(error)


def _read(key: str, files: Any, read: Callable[[Any], object]) -> None:
    """Read the files of a setting or table, if there are any, with its key in the text of an error."""
    if files is not None:
        with naming(key):
            read(files)


def _check_descriptors(settings: Settings) -> None:
    for file in settings.admin.descriptors:
        _read("admin.descriptors", file, check_readable)


def _check_users(settings: Settings) -> None:
    found = authority(settings.auth.model_copy(update={"plain_acl": None}))
    if found is not None and settings.auth.jwks is not None and "://" not in settings.auth.jwks:
        grpc_guard(settings.auth, found)


def _check_plain_acl(settings: Settings) -> None:
    authority(settings.auth.model_copy(update={"users": None}))


def _check_rules(settings: Settings) -> None:
    RulesReloader(settings.rules.file, apply=lambda _: None)


_CHECKS: tuple[Callable[[Settings], None], ...] = (
    lambda settings: _read("tls", settings.tls.files, TlsSource),
    lambda settings: _read("cluster_tls", settings.cluster_tls.files, ClientTlsSource),
    lambda settings: _read("admin", settings.admin.files, server_context),
    lambda settings: _read("admin.tokens", settings.admin.tokens, read_tokens),
    _check_descriptors,
    _check_users,
    _check_plain_acl,
    _check_rules,
)
