"""What `make clients` does: every official client through the one port, plain and TLS.

    python -m tests.clients.run [--backend cluster|embedded] [--only TEXT …] [--list]

The backend is a real cluster of two brokers, or the embedded broker.

The port is the route of remoting and of gRPC clients alike. Those that verify its certificate trust the
authority that signed it. Clients that name no broker have a door to the second one: the proxy's second listener.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from tests.cluster.kit import HOST, PEERS, Cluster, Gantry, free_port

_MATRIX = PEERS.with_name("matrix")
# Messages of the trace topic are looked for, and SQL filters are used, by rows of the matrix.
_CLUSTER = ("--second-broker", "--fast-timers")
_AUTHORITY = "authority.pem"


def main() -> int:
    """Run the matrix; 0 where every row has passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("cluster", "embedded"), default="cluster")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows whose label holds this text")
    parser.add_argument("--jobs", default="2", help="rows to run side by side")
    parser.add_argument("--json", default="build/clients.jsonl", metavar="FILE")
    parser.add_argument("--list", action="store_true", help="print the labels of the rows and run nothing")
    options = parser.parse_args()
    # The servers must not outlive a run that is ended from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    Path(options.json).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gantry-clients-") as name:
        directory = Path(name)
        if options.list:
            return _matrix(directory, HOST, options.only, "--list")
        with _BACKENDS[options.backend](directory) as gantry:
            words = ("--ca", str(directory / _AUTHORITY), "--jobs", options.jobs, "--json", options.json)
            return _matrix(directory, gantry.address, options.only, *words)


def _matrix(directory: Path, address: str, only: list[str], *words: str) -> int:
    routes = [word for protocol in ("--remoting", "--grpc") for word in (protocol, f"gantry={address}")]
    chosen = [word for text in only for word in ("--only", text)]
    return subprocess.run([sys.executable, str(_MATRIX), "--dir", str(directory), *routes, *chosen, *words]).returncode


@contextmanager
def _before_a_cluster(directory: Path) -> Iterator[Gantry]:
    port, door = free_port(), free_port()
    config = f"""
        {_tls(directory)}

        [[listen]]
        address = "{HOST}:{port}"

        [[listen]]
        address = "{HOST}:{door}"
        broker = "broker-b"
    """
    with (
        Cluster(directory, *_CLUSTER) as cluster,
        Gantry(directory, cluster.namesrv, config, port, listen=False) as gantry,
    ):
        yield gantry


@contextmanager
def _embedded(directory: Path) -> Iterator[Gantry]:
    port = free_port()
    # Transactions are asked about as soon as by the cluster.
    config = f"""
        {_tls(directory)}

        [embedded]
        directory = "{directory / "store"}"
        listen = "{HOST}:{port}"
        transaction_timeout = 2
        transaction_interval = 3
    """
    with Gantry(directory, "", config) as gantry:
        adopt = (sys.executable, str(PEERS), "adopt", str(port), "--pid", str(gantry.pid), "--dir", str(directory))
        subprocess.run(adopt, check=True, stdout=subprocess.DEVNULL)
        yield gantry


_BACKENDS = {"cluster": _before_a_cluster, "embedded": _embedded}


def _tls(directory: Path) -> str:
    """The table of a new certificate, signed by the authority."""
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST)
    authority.cert_pem.write_to_path(directory / _AUTHORITY)
    chain, key = directory / "chain.pem", directory / "key.pem"
    certificate.private_key_pem.write_to_path(key)
    for number, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(chain, append=bool(number))
    return f"""
        [tls]
        certificate = "{chain}"
        key = "{key}"
    """


if __name__ == "__main__":
    sys.exit(main())
