"""Three replicas behind HAProxy."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cluster.servers import HOST, Cluster, Failed, Gantry, accepts
from tests.ports import free_port

REPLICAS = 3
# Longer than the two checks after which HAProxy sends no new connections to a draining replica.
_CONFIG = """
drain_delay = 3.0
drain_timeout = 10.0
workers = {workers}
admin.listen = "off"
metrics_listen = "{host}:{metrics}"
[[listen]]
address = "{address}"
advertise = "{advertised}"
trusted_proxies = ["127.0.0.0/8"]
"""
_HAPROXY = """
defaults
    mode tcp
    retries 2
    option redispatch 1
    timeout connect 2s
    timeout client 150s
    timeout server 150s
    timeout check 2s
frontend access-point
    bind "{address}"
    default_backend replicas
backend replicas
    balance leastconn
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host gantry
    http-check expect status 200
    default-server check inter 1s fall 2 rise 1 send-proxy-v2 check-send-proxy
{servers}
frontend status
    mode http
    bind "{status}"
    stats enable
    stats uri /
"""


class Fleet:
    """Three replicas behind HAProxy."""

    def __init__(self, directory: Path, cluster: Cluster, workers: int = 1) -> None:
        self.address = f"{HOST}:{free_port()}"
        self._status = f"{HOST}:{free_port()}"
        self._file = directory / "haproxy.cfg"
        self.metrics = [free_port() for _ in range(REPLICAS)]
        self.replicas = [self._replica(directory, cluster, workers, number) for number in range(REPLICAS)]
        servers = "\n".join(
            f"    server gantry-{number} {replica.address}" for number, replica in enumerate(self.replicas)
        )
        self._file.write_text(_HAPROXY.format(address=self.address, status=self._status, servers=servers))

    def _replica(self, directory: Path, cluster: Cluster, workers: int, number: int) -> Gantry:
        port = free_port()
        home = directory / f"replica-{number}"
        home.mkdir()
        config = _CONFIG.format(
            workers=workers,
            host=HOST,
            metrics=self.metrics[number],
            address=f"{HOST}:{port}",
            advertised=self.address,
        )
        return Gantry(home, cluster.namesrv, f'replica = "replica-{number}"\n{config}', port=port, listen=False)

    @contextmanager
    def running(self) -> Iterator["Fleet"]:
        """Run the replicas and HAProxy; replicas that the test has left must end with status 0."""
        haproxy = None
        try:
            for replica in self.replicas:
                replica.start()
            haproxy = subprocess.Popen(["haproxy", "-db", "-f", str(self._file)], stderr=subprocess.DEVNULL)
            self.wait(REPLICAS)
            yield self
        finally:
            for replica in self.replicas:
                replica.kill()
            if haproxy is not None:
                haproxy.kill()
                haproxy.wait()

    def wait(self, up: int, timeout: float = 60.0) -> None:
        """Wait until HAProxy sees this number of replicas that serve."""
        deadline = time.monotonic() + timeout
        while self._up() != up:
            if time.monotonic() > deadline:
                raise Failed(f"HAProxy sees {self._up()} replicas instead of {up} after {timeout} s")
            time.sleep(0.2)

    def _up(self) -> int:
        if not accepts(int(self.address.rpartition(":")[2])):
            return 0
        with urllib.request.urlopen(f"http://{self._status}/;json", timeout=30) as answer:
            rows = [{cell["field"]["name"]: cell["value"]["value"] for cell in row} for row in json.load(answer)]
        return sum(row.get("svname", "").startswith("gantry-") and row["status"] == "UP" for row in rows)


def workers(replica: Gantry) -> list[int]:
    """Return the process ids of a replica's workers."""
    children = Path(f"/proc/{replica.pid}/task/{replica.pid}/children").read_text().split()
    found = []
    for child in map(int, children):
        with suppress(OSError):
            if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found
