"""`make clients`: every official client through the one port, plain and TLS.

    python -m tests.clients.run [--backend cluster|embedded] [--version X.Y.Z] [--acl] [--tenant] [--only TEXT …]
        [--part N/PARTS] [--list]

The backend is a real cluster of two brokers, or the embedded broker. With --acl it keeps users, by whom Gantry
authenticates the clients; they have one without administrative permissions.

With --tenant, traffic rules put all clients into a namespace, where the topic of each row is an alias, and limit each
client.

Remoting and gRPC clients use the same port. Clients that verify its certificate trust the authority that signed it.
Clients that name no broker reach the second broker through the proxy's second listener.

The proxy keeps traffic records. After its end the analytics count them, and every count must equal the proxy's metrics
(`agreement.py`), which are scraped after all clients have gone and no request is in flight. Traffic of brokers, tools
and clients that bypass the proxy is in neither.
"""

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import trustme

from analytics.session import session
from remoting.signature import Credentials
from tests.acl_table.probes import Target, wait_until_known
from tests.clients.agreement import Agreement, Samples, compare
from tests.cluster.servers import HOST, PEERS, Cluster, Failed, Gantry
from tests.ports import free_port

_MATRIX = PEERS.with_name("matrix")
# Rows of the matrix query messages of the trace topic, and use SQL filters.
_CLUSTER = ("--second-broker", "--fast-timers")
# With --acl: the kit's super users, the clients' user, and its permissions.
_ADMIN, _INNER = Credentials("admin", "admin-secret-1"), Credentials("inner", "inner-secret-1")
_USER = Credentials("clients", "clients-secret-1")
_GRANTS = ("Topic:*=Pub,Sub,Get", "Group:*=Sub,Get,Update")
_AUTH = """
        [auth]
        brokers = true
        # Pull consumers of the Go client do not sign route requests.
        anonymous = "routes"
"""
# Seconds to stop.
_CLOSING = re.compile(r"(\d+) passed, (\d+) failed")
_AUTHORITY = "authority.pem"
# With --tenant: the namespace, the suffix of topics at the brokers, the name of all rows, their maximum number.
_TENANT, _REAL, _STAMP, _ROWS = "acme", "-real", "row", 400
_RULES = "rules.toml"
_RECORDS = "traffic"
# Gauges that must be zero before the metrics are final.
_LEFT = ("gantry_connections", "gantry_requests_in_flight")
# Seconds that connections and requests of finished clients may linger, and seconds between two checks.
_TIMEOUT, _POLL_INTERVAL = 60.0, 0.5


def main() -> int:
    """Run the matrix; return 0 if every row passed, and records and metrics agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("cluster", "embedded"), default="cluster")
    parser.add_argument("--version", metavar="X.Y.Z", help="version of the cluster; default: that of the peers kit")
    parser.add_argument("--acl", action="store_true", help="require credentials at the backend; all clients have some")
    parser.add_argument("--tenant", action="store_true", help="put the clients into a namespace with topic aliases")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows whose label holds this text")
    parser.add_argument("--part", default="1/1", metavar="N/PARTS", help="the Nth of PARTS equal parts of the rows")
    parser.add_argument("--jobs", default="2", help="rows to run side by side")
    parser.add_argument("--json", default="build/clients.jsonl", metavar="FILE")
    parser.add_argument("--list", action="store_true", help="print the labels of the rows and run nothing")
    options = parser.parse_args()
    # SIGTERM must stop the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    Path(options.json).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gantry-clients-") as name:
        directory = Path(name)
        if options.list:
            return subprocess.run(_matrix(directory, HOST, options.only, "--part", options.part, "--list")).returncode
        metrics_port = free_port()
        if options.acl:
            os.environ.update(PEERS_ACCESS_KEY=_USER.access_key, PEERS_SECRET_KEY=_USER.secret_key)
        observed = _observed(directory, metrics_port)
        names: tuple[str, ...] = ()
        if options.tenant:
            (directory / _RULES).write_text(_rules())
            observed = f'rules = {{ file = "{directory / _RULES}" }}\n{observed}'
            names = ("--tenant", _TENANT, f"--alias={_REAL}", "--stamp", _STAMP)
        with _BACKENDS[options.backend](directory, observed, options.acl, options.version) as gantry:
            words = ("--ca", str(directory / _AUTHORITY), "--part", options.part, "--jobs", options.jobs, *names)
            status, passed, failed = _rows(
                _matrix(directory, gantry.address, options.only, "--json", options.json, *words)
            )
            metrics = _last_metrics(f"http://{HOST}:{metrics_port}/metrics")
        if not passed + failed:
            # There are no records.
            print("\n0 passed, 0 failed")
            return status
        agreement = _agreement(metrics, directory / _RECORDS)
        agrees = not agreement.differences
        print(f"\n{agreement}\n\n{passed + agrees} passed, {failed + (not agrees)} failed")
        return status or int(not agrees)


def _rules() -> str:
    """Return the rules of a tenant: a namespace, an alias for the topic of each row, and a limit of each client."""
    kinds = [f'kind = "namespace"\nnamespace = "{_TENANT}"', 'kind = "limit"\nmessages = 100_000\nper = ["client"]']
    topics = (f"{_STAMP}-{number}" for number in range(_ROWS))
    kinds += [f'kind = "alias"\ntopic = "{topic}"\nreal = "{topic}{_REAL}"' for topic in topics]
    where = 'match.listeners = ["clients*"]'
    return "\n".join(f'[[rule]]\nname = "rule-{number}"\n{kind}\n{where}\n' for number, kind in enumerate(kinds))


def _rows(matrix: list[str]) -> tuple[int, int, int]:
    """Run the matrix; return its exit status (1 without rows), and the numbers of passed and failed rows.

    Raises Failed if the matrix does not finish.
    """
    closing = None
    with subprocess.Popen(matrix, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            closing = _CLOSING.fullmatch(line.strip())
            if closing is None:
                print(line, end="", flush=True)
    if closing is None:
        raise Failed(f"the matrix ended with {process.returncode}, without saying how many rows have passed")
    return process.returncode, int(closing[1]), int(closing[2])


def _matrix(directory: Path, address: str, only: list[str], *words: str) -> list[str]:
    routes = [word for protocol in ("--remoting", "--grpc") for word in (protocol, f"gantry={address}")]
    chosen = [word for text in only for word in ("--only", text)]
    return [sys.executable, str(_MATRIX), "--dir", str(directory), *routes, *chosen, *words]


@contextmanager
def _before_a_cluster(directory: Path, observed: str, acl: bool, version: str | None) -> Iterator[Gantry]:
    port, door = free_port(), free_port()
    identity = f"""
        [cluster]
        access_key = "{_INNER.access_key}"
        secret_key = "{_INNER.secret_key}"
        {_AUTH}
    """
    config = f"""
        {observed}
        {_tls(directory)}
        {identity if acl else ""}

        [[listen]]
        address = "{HOST}:{port}"
        name = "clients"

        [[listen]]
        address = "{HOST}:{door}"
        name = "clients-b"
        broker = "broker-b"
    """
    with (
        Cluster(
            directory, *_CLUSTER, *(("--acl",) if acl else ()), *(("--version", version) if version else ())
        ) as cluster,
        Gantry(directory, cluster.namesrv, config, port, listen=False) as gantry,
    ):
        if acl:
            cluster.user(_USER.access_key, _USER.secret_key, *_GRANTS)
            _wait_until_known(gantry)
        yield gantry


@contextmanager
def _embedded(directory: Path, observed: str, acl: bool, _: str | None) -> Iterator[Gantry]:
    port, door = free_port(), free_port()
    super_user = f"""
        super_user = "{_ADMIN.access_key}"
        super_secret = "{_ADMIN.secret_key}"
    """
    # The same transaction check interval as in the cluster.
    config = f"""
        {observed}
        {_tls(directory)}

        [embedded]
        directory = "{directory / "store"}"
        listen = "{HOST}:{port}"
        transaction_timeout = 2
        transaction_interval = 3
        {super_user + _AUTH if acl else ""}

        [[listen]]
        address = "{HOST}:{door}"
        name = "clients"
    """
    with Gantry(directory, "", config, door, listen=False) as gantry:
        adopt = [sys.executable, str(PEERS), "adopt", str(port), "--pid", str(gantry.pid), "--dir", str(directory)]
        if acl:
            adopt += ["--admin", _ADMIN.access_key, _ADMIN.secret_key]
        subprocess.run(adopt, check=True, stdout=subprocess.DEVNULL)
        if acl:
            Cluster(directory).user(_USER.access_key, _USER.secret_key, *_GRANTS)
            _wait_until_known(gantry)
        yield gantry


_BACKENDS = {"cluster": _before_a_cluster, "embedded": _embedded}


def _wait_until_known(gantry: Gantry) -> None:
    """Wait until Gantry knows the clients' user: before that they would be denied."""
    asyncio.run(wait_until_known(Target(gantry.address, gantry.address), _USER))


def _observed(directory: Path, port: int) -> str:
    """Return the settings that record everything, and keep every topic and group in the metrics until the end."""
    return f"""
        metrics_listen = "{HOST}:{port}"

        [metrics]
        top = 10_000
        idle = 86_400

        [traffic]
        directory = "{directory / _RECORDS}"
        interval = 5
    """


def _last_metrics(url: str) -> str:
    """Return the metrics when there are no connections and no requests in flight. Raises Failed after a timeout.

    An rpc whose connection is lost is counted some loop turns later: hence two checks.
    """
    deadline = time.monotonic() + _TIMEOUT
    quiet = False
    while True:
        with urlopen(url, timeout=10) as answer:
            text: str = answer.read().decode()
        samples = Samples(text)
        left = {gauge: counts for gauge in _LEFT if (counts := samples.sums(gauge, "protocol"))}
        if quiet and not left:
            return text
        quiet = not left
        if left and time.monotonic() > deadline:
            raise Failed(f"the clients have ended, and something is left of them: {left}")
        time.sleep(_POLL_INTERVAL)


def _agreement(metrics: str, records: Path) -> Agreement:
    spark = session("gantry-clients", quiet=True)
    try:
        return compare(spark, metrics, str(records))
    finally:
        spark.stop()


def _tls(directory: Path) -> str:
    """Return the settings of a new certificate, signed by the authority."""
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST)
    authority.cert_pem.write_to_path(directory / _AUTHORITY)
    chain, key = directory / "chain.pem", directory / "key.pem"
    certificate.private_key_pem.write_to_path(key)
    key.chmod(0o600)
    for number, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(chain, append=bool(number))
    return f"""
        [tls]
        certificate = "{chain}"
        key = "{key}"
    """


if __name__ == "__main__":
    sys.exit(main())
