"""What `make clients` does: every official client through the one port, plain and TLS, on two brokers.

    python -m tests.clients.run [--only TEXT …] [--list]

Clients that name no broker have a door to the second one: the proxy's second listener.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import trustme

from tests.cluster.kit import HOST, PEERS, Cluster, Gantry, free_port

_MATRIX = PEERS.with_name("matrix")
# Messages of the trace topic are looked for, and SQL filters are used, by rows of the matrix.
_CLUSTER = ("--second-broker", "--fast-timers")


def main() -> int:
    """Run the matrix; 0 where every row has passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("cluster",), default="cluster")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows whose label holds this text")
    parser.add_argument("--jobs", default="2", help="rows to run side by side")
    parser.add_argument("--json", default="build/clients.jsonl", metavar="FILE")
    options = parser.parse_args()
    Path(options.json).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gantry-clients-") as name:
        directory = Path(name)
        with Cluster(directory, *_CLUSTER) as cluster, _gantry(directory, cluster) as gantry:
            words = ["--dir", name, "--remoting", f"gantry={gantry.address}", "--jobs", options.jobs]
            words += [word for text in options.only for word in ("--only", text)]
            return subprocess.run([sys.executable, str(_MATRIX), *words, "--json", options.json]).returncode


def _gantry(directory: Path, cluster: Cluster) -> Gantry:
    port, door = free_port(), free_port()
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST)
    chain, key = directory / "chain.pem", directory / "key.pem"
    certificate.private_key_pem.write_to_path(key)
    for number, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(chain, append=bool(number))
    config = f"""
        [tls]
        certificate = "{chain}"
        key = "{key}"

        [[listen]]
        address = "{HOST}:{port}"

        [[listen]]
        address = "{HOST}:{door}"
        broker = "broker-b"
    """
    return Gantry(directory, cluster.namesrv, config, port, listen=False)


if __name__ == "__main__":
    sys.exit(main())
