import os
import time
from pathlib import Path
from typing import Any

import pytest

from protocol_negotiation.self_signed import SelfSignedSource
from proxy.frontends.certificates import NOT_AFTER, OUTDATED, Certificates
from proxy.settings.model import Settings
from proxy.tools.cert.authority import Authority

pytestmark = pytest.mark.anyio
_DAY = 86_400.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def settings(authority: Authority, **tls: Any) -> Settings:
    directory = authority.directory
    files = {"certificate": directory / "server.pem", "key": directory / "server.key", **tls}
    return Settings(embedded={"directory": directory / "broker"}, tls=files)


def values(certificates: Certificates) -> dict[str, dict[tuple[str, ...], Any]]:
    return {family.name: dict(samples) for family, samples in certificates.read_metrics()}


async def test_ends_of_validity_are_metrics_by_role_and_file(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "c")
    authority.issue_server("server", ["rocketmq.test"], 30)
    authority.revoke("server", 2)
    certificates = Certificates(
        settings(authority, client_ca=authority.certificate_file, crl=authority.crl_file, client_auth="optional")
    )
    ends = values(certificates)[NOT_AFTER.name]
    expected = {"listener": ("server.pem", 30), "client_ca": ("ca.pem", 3650), "crl": ("crl.pem", 2)}
    for role, (name, days) in expected.items():
        assert ends[role, str(tmp_path / "c" / name)] == pytest.approx(time.time() + days * _DAY, abs=60)
    assert len(ends) == 3
    assert NOT_AFTER.series_name == "gantry_certificate_not_after_seconds"
    assert values(certificates)[OUTDATED.name] == {("listener",): 0.0}
    [problem] = certificates.problems()
    assert problem == f"{authority.crl_file} (crl) expires in 2 days"


async def test_a_renewed_certificate_ends_the_warning(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "c")
    issued = authority.issue_server("server", ["rocketmq.test"], 3)
    certificates = Certificates(settings(authority))
    assert certificates.problems() == [f"{issued.certificate} (listener) expires in 3 days"]
    authority.issue_server("server", ["rocketmq.test"], 90, replace=True)
    await certificates.refresh()
    assert certificates.problems() == []


async def test_unusable_changes_are_problems_and_the_former_certificate_stays(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "c")
    issued = authority.issue_server("server", ["rocketmq.test"], 90)
    certificates = Certificates(settings(authority))
    assert certificates.listeners is not None
    context = certificates.listeners.context
    issued.key.chmod(0o644)
    os.utime(issued.key)
    await certificates.refresh()
    assert certificates.listeners.context is context
    assert values(certificates)[OUTDATED.name] == {("listener",): 1.0}
    assert OUTDATED.series_name == "gantry_certificates_outdated"
    [problem] = certificates.problems()
    assert problem.startswith(f"not reloaded: {issued.key}: mode 0644 gives other users access")
    issued.key.chmod(0o600)
    await certificates.refresh()
    assert certificates.problems() == []


async def test_a_self_signed_certificate_needs_no_attention(tmp_path: Path) -> None:
    certificates = Certificates(Settings(embedded={"directory": tmp_path}))
    assert isinstance(certificates.listeners, SelfSignedSource)
    await certificates.refresh()
    assert certificates.problems() == []
    assert values(certificates) == {NOT_AFTER.name: {}, OUTDATED.name: {("listener",): 0.0}}


async def test_without_tls_there_is_nothing_to_report(tmp_path: Path) -> None:
    certificates = Certificates(Settings(embedded={"directory": tmp_path}, tls={"self_signed": False}))
    assert certificates.listeners is None
    assert certificates.cluster is None
    assert certificates.problems() == []
    assert not any(values(certificates).values())
