"""The certificates of a replica: contexts for listeners and the cluster, reload of files, ends of validity."""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import anyio.to_thread

from protocol_negotiation.certificates import next_update, not_after
from protocol_negotiation.self_signed import SelfSignedSource
from protocol_negotiation.tls import TlsOptions, TlsSource
from protocol_negotiation.tls_client import ClientTlsSource, Verification
from protocol_negotiation.tls_files import Refresh, TlsError, stamp_of
from proxy.observability.metrics.family import Family, Kind, Merge, Samples
from proxy.settings.model import Settings
from proxy.settings.naming import naming
from remoting.tasks import every

_log = logging.getLogger("gantry")

# Seconds before the end of validity from which health reports warn; the alert GantryCertificateExpires has it, too.
WARNING_PERIOD = 14 * 86_400.0
_DAY = 86_400.0

NOT_AFTER = Family(
    "gantry_certificate_not_after_seconds",
    Kind.GAUGE,
    "End of validity of each configured certificate file, of a revocation list the next update: Unix time in seconds. "
    "Of several certificates in a file the earliest.",
    ("role", "file"),
    Merge.MIN,
)
OUTDATED = Family(
    "gantry_certificates_outdated",
    Kind.GAUGE,
    "1 if changed certificate files cannot be used, so that the former ones stay in use.",
    ("role",),
    Merge.MAX,
)


@dataclass(frozen=True, slots=True)
class Expiry:
    """A certificate file with an end of validity, Unix time in seconds."""

    role: str
    path: Path
    at: float


class Certificates:
    """All certificates of a replica. Raises TlsError if a file of the listeners or the cluster cannot be used.

    listeners, cluster: the contexts; None without TLS. ticket_secret: secret that all workers have.
    """

    def __init__(self, settings: Settings, ticket_secret: bytes | None = None) -> None:
        self._settings = settings
        self._ticket_secret = ticket_secret
        cluster_files = settings.cluster_tls.files
        with naming("tls"):
            self.listeners = self._listener_source(settings)
        with naming("cluster_tls"):
            self.cluster = None if cluster_files is None else ClientTlsSource(cluster_files)
        self._expiries: dict[tuple[str, Path], Expiry] = {}
        self._stamps: dict[tuple[str, Path], object] = {}
        self._read_expiries()
        if cluster_files is not None and cluster_files.verification is Verification.INSECURE:
            _log.warning("cluster_tls.verify is insecure: the identity of name servers and brokers is not verified")

    def _listener_source(self, settings: Settings) -> TlsSource | SelfSignedSource | None:
        files, self_signed = settings.tls.files, settings.tls.self_signed_certificate
        if files is not None:
            return TlsSource(replace(files, options=self._with_secret(files.options)))
        if self_signed is not None:
            _log.info("tls.certificate is not set: clients with TLS get a self-signed certificate")
            return SelfSignedSource(replace(self_signed, options=self._with_secret(self_signed.options)))
        return None

    def _with_secret(self, options: TlsOptions) -> TlsOptions:
        return replace(options, ticket_secret=self._ticket_secret)

    async def run(self) -> None:
        """Reload changed files, until cancelled."""
        await every(lambda: self._settings.tls.reload_interval, self.refresh, name="certificates")

    async def refresh(self) -> None:
        """Reload changed files. Files that cannot be used are logged, and the former ones stay in use."""
        await anyio.to_thread.run_sync(self._refresh)

    def apply(self, settings: Settings) -> None:
        """Use other files from the next refresh on."""
        self._settings = settings
        files, cluster_files = settings.tls.files, settings.cluster_tls.files
        if isinstance(self.listeners, TlsSource) and files is not None:
            self.listeners.files = replace(files, options=self._with_secret(files.options))
        if self.cluster is not None and cluster_files is not None:
            self.cluster.files = cluster_files

    def problems(self) -> list[str]:
        """Return the texts about expired certificates, those that expire soon, and files that cannot be used."""
        now = time.time()
        texts = [
            f"{item.path} ({item.role}) {_remaining(item.at - now)}"
            for item in self._expiries.values()
            if item.at - now < WARNING_PERIOD
        ]
        return texts + [f"not reloaded: {error}" for error in self._errors().values() if error is not None]

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the families of this module."""
        yield NOT_AFTER, {(item.role, str(item.path)): item.at for item in self._expiries.values()}
        yield OUTDATED, {(role,): float(error is not None) for role, error in self._errors().items()}

    def _errors(self) -> Mapping[str, TlsError | None]:
        sources = {"listener": self.listeners, "cluster": self.cluster}
        return {role: source.error for role, source in sources.items() if source is not None}

    def _refresh(self) -> None:
        for source in (self.listeners, self.cluster):
            if source is None:
                continue
            outcome = source.refresh()
            if outcome is Refresh.FAILED:
                _log.error("the changed TLS certificate is not usable, the former one stays in use: %s", source.error)
            elif outcome is Refresh.RELOADED:
                _log.info("loaded the changed TLS files: %s", ", ".join(map(str, source.files.paths)))
        self._read_expiries()

    def _read_expiries(self) -> None:
        """Read the ends of validity of files that have changed."""
        files = dict.fromkeys(_files(self._settings))
        for key in files:
            role, path = key
            try:
                stamp = stamp_of([path])
            except TlsError:
                continue
            if self._stamps.get(key) != stamp:
                self._stamps[key] = stamp
                at = next_update(path) if role.endswith("crl") else not_after(path)
                if at is not None:
                    self._expiries[key] = Expiry(role, path, at)
        for key in self._expiries.keys() - files.keys():
            del self._expiries[key], self._stamps[key]


def _files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yield the role and the path of each configured file with certificates or revocation lists."""
    listeners, cluster, admin = settings.tls.files, settings.cluster_tls.files, settings.admin.files
    if listeners is not None:
        for pair in listeners.key_pairs:
            yield "listener", pair.certificate
        yield from _present(("client_ca", listeners.client_ca), ("crl", listeners.crl))
    if cluster is not None:
        parts = (("cluster", cluster.certificate), ("cluster_ca", cluster.ca), ("cluster_crl", cluster.crl))
        yield from _present(*parts)
    if admin is not None:
        yield from _present(("admin", admin.certificate), ("admin_ca", admin.client_ca), ("admin_crl", admin.crl))


def _present(*parts: tuple[str, Path | None]) -> Iterator[tuple[str, Path]]:
    for role, path in parts:
        if path is not None:
            yield role, path


def _remaining(seconds: float) -> str:
    if seconds < 0:
        return "has expired"
    return f"expires in {seconds / _DAY:.0f} days"
