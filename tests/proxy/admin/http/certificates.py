"""Certificates of an admin listener."""

from pathlib import Path

import trustme


def certified(authority: trustme.CA, folder: Path, name: str = "server") -> dict[str, str]:
    issued = authority.issue_cert("localhost", "127.0.0.1")
    files = {"certificate": folder / f"{name}.pem", "key": folder / f"{name}.key"}
    files["certificate"].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    files["key"].write_bytes(issued.private_key_pem.bytes())
    files["key"].chmod(0o600)
    return {key: str(file) for key, file in files.items()}
