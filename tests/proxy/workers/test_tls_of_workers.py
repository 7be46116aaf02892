"""TLS and files of a replica with two workers."""

import socket
import ssl
from pathlib import Path

from proxy.tools.cert.authority import Authority
from tests.cluster.servers import HOST, Gantry
from tests.ports import free_port
from tests.protocol_negotiation.tls_scan import Scanner
from tests.proxy.workers.processes import wait_for_both

# The kernel gives each connection to either worker. That one worker gets all has a probability of 2**-11.
_CONNECTIONS = 12
_HEADER = b'{"code":105,"extFields":{"topic":"t"},"language":"JAVA","opaque":1,"version":400}'
_REQUEST = (len(_HEADER) + 4).to_bytes(4) + len(_HEADER).to_bytes(4) + _HEADER


def test_sessions_are_resumed_by_either_worker_and_files_are_private(tmp_path: Path) -> None:
    issued = Authority(tmp_path / "certificates").issue_server("server", [HOST], 30)
    config = f"""
        workers = 2
        [embedded]
        directory = "{tmp_path}/data/broker"
        listen = "{HOST}:{free_port()}"
        [admin]
        listen = "off"
        [traffic]
        directory = "{tmp_path}/data/records"
        [tls]
        certificate = "{issued.certificate}"
        key = "{issued.key}"
    """
    with Gantry(tmp_path, "", config) as gantry:
        wait_for_both(gantry)
        scanner = Scanner(HOST, gantry.port)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            assert scanner.resumes(version, _CONNECTIONS) == _CONNECTIONS
        with socket.create_connection((HOST, gantry.port), 30) as client:
            client.sendall(_REQUEST)
            assert client.recv(4)
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "data").rglob("*")}
    assert any(path.suffix == ".parquet" for path in modes)
    assert any(path.name == "format" for path in modes)
    for path, mode in modes.items():
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert "other users can access it" not in gantry.log.read_text()
