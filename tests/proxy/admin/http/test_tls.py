"""TLS of the HTTP API."""

import ssl
from pathlib import Path

import pytest

from protocol_negotiation.tls import ClientAuth, TlsFiles
from proxy.admin.http.server import _following, _tls
from proxy.tools.cert.authority import Authority
from tests.protocol_negotiation.test_tls_front import client_context, connected


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_not_resumed(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """The listening socket keeps its first context: a session could outlive a change of the certificate authorities."""
    issuer = Authority(tmp_path / "certificates")
    issued = issuer.issue_server("server", ["rocketmq.test"], 1)
    files = TlsFiles(issued.certificate, issued.key, None, issuer.certificate_file, ClientAuth.OPTIONAL)
    context = _following(_tls(files), files)
    client = client_context(issuer, issuer.issue_client("alice", 1), version)
    first = connected(context, client, None)
    assert first.session is None or not connected(context, client, first.session).session_reused
