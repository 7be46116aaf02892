"""Files in the settings that prove the identity of clients, and that users other than the owner can change."""

from collections.abc import Iterator
from pathlib import Path

from proxy.settings.model import Settings
from proxy.settings.secret_files import check_writers


def changeable_by_others(settings: Settings) -> Iterator[str]:
    """Yield a text for each file of CAs or revocation lists that group or others can change.

    They are reported, not refused, as by other servers: mounted volumes of development machines have such modes.
    """
    for key, file in _files(settings):
        try:
            if file is not None:
                check_writers(file)
        except OSError:
            # Loading the file reports it.
            continue
        except ValueError as error:
            yield f"{key}: {error}"


def _files(settings: Settings) -> Iterator[tuple[str, Path | None]]:
    yield "tls.client_ca", settings.tls.client_ca
    yield "tls.crl", settings.tls.crl
    yield "admin.client_ca", settings.admin.client_ca
    yield "admin.crl", settings.admin.crl
