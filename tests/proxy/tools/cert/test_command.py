import os
import ssl
import tomllib
from pathlib import Path

import pytest
from cryptography import x509

from protocol_negotiation.tls import TlsFiles, server_context
from proxy.__main__ import main
from tests.protocol_negotiation.tls_handshake import handshake


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_certificates_are_private_and_usable(tmp_path: Path, capsys: pytest.CaptureFixture[str], mask: int) -> None:
    directory = tmp_path / "certificates"
    words = ["cert", "--dir", str(directory), "--host", "rocketmq.test", "--host", "::1", "--client", "alice"]
    previous = os.umask(mask)
    try:
        assert main(words) == 0
    finally:
        os.umask(previous)
    assert directory.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    private = {"ca.key", "server.key", "alice.key"}
    assert modes == {
        **dict.fromkeys(private, 0o600),
        **dict.fromkeys(("ca.pem", "server.pem", "alice.pem", "crl.pem"), 0o644 & ~mask),
    }
    client = ssl.create_default_context(cafile=directory / "ca.pem")
    client.load_cert_chain(directory / "alice.pem", directory / "alice.key")
    handshake(server_context(TlsFiles(directory / "server.pem", directory / "server.key")), client)
    settings = capsys.readouterr().out
    assert f'certificate = "{directory / "server.pem"}"' in settings
    tables = [part for part in settings.split("\n\n") if "[" in part]
    assert [list(tomllib.loads(table)) for table in tables] == [["tls"], ["cluster_tls"]]


def test_the_printed_key_belongs_to_the_printed_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cert", "--dir", str(tmp_path / "c"), "--client", "alice", "--client", "bob"]) == 0
    printed = capsys.readouterr().out
    settings = tomllib.loads(printed[printed.index("[cluster_tls]") :])["cluster_tls"]
    assert (Path(settings["certificate"]).name, Path(settings["key"]).name) == ("alice.pem", "alice.key")


def test_existing_certificates_are_replaced_only_with_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["cert", "--dir", str(tmp_path / "c"), "--client", "alice"]
    assert main(words) == 0
    authority, first = ((tmp_path / "c" / name).read_bytes() for name in ("ca.pem", "alice.pem"))
    assert main(words) == 1
    assert "alice.pem exists: use --force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0
    assert (tmp_path / "c" / "ca.pem").read_bytes() == authority
    assert (tmp_path / "c" / "alice.pem").read_bytes() != first


def test_revoked_certificates_are_in_the_revocation_list(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    for words in (["--client", "alice", "--client", "bob"], ["--revoke", "alice"], ["--revoke", "bob"]):
        assert main(["cert", "--dir", str(directory), *words]) == 0
    revoked = {item.serial_number for item in x509.load_pem_x509_crl((directory / "crl.pem").read_bytes())}
    assert revoked == {
        x509.load_pem_x509_certificate((directory / name).read_bytes()).serial_number
        for name in ("alice.pem", "bob.pem")
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--client", "../alice"], "'../alice' cannot be the name of a certificate"),
        (["--client", "ca"], "'ca' cannot be the name of a certificate"),
        (["--host", "bücher.test"], "neither a host name in ASCII nor an IP address"),
        (["--revoke", "nobody"], "nobody.pem: No such file or directory\n"),
    ],
)
def test_errors_name_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["cert", "--dir", str(tmp_path / "c"), *words]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("days", ["-1", "0", "99999999", "a year"])
def test_days_of_no_certificate_are_refused(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["cert", f"--days={days}"])
    assert "not a number of days from 1 to 36,500" in capsys.readouterr().err
