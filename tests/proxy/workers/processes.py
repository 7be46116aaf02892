"""Replicas as processes, with an embedded broker."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import grpc
from prometheus_client.parser import text_string_to_metric_families

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from tests.cluster.servers import START_TIMEOUT, Gantry
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
_METADATA = (("x-mq-client-id", "c1"), ("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.0.7"))


def total(text: str, name: str, **labels: str) -> float:
    """Return the sum of all samples with these labels."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


class Process:
    """`gantry serve` on an embedded broker, with metrics.

    admin, admin_grpc: addresses of the first worker's admin API and Admin gRPC service. more: settings as environment
    variables.
    """

    def __init__(
        self, folder: Path, workers: int, admin: str = "off", admin_grpc: str = "off", more: Mapping[str, str] = {}
    ) -> None:
        self.port, self.metrics = free_port(), free_port()
        self.log = folder / "log"
        words = ["--listen", f"127.0.0.1:{self.port}", "--embedded", str(folder / "store")]
        words += ["--workers", str(workers)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GANTRY_")}
        environment |= {
            "GANTRY_METRICS_LISTEN": f"127.0.0.1:{self.metrics}",
            "GANTRY_ADMIN__LISTEN": admin,
            "GANTRY_ADMIN__GRPC": admin_grpc,
            "GANTRY_ADMIN__LOCAL": "write",
            **more,
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "proxy", "serve", *words], cwd=ROOT, env=environment, stdout=log, stderr=log
            )
        self.wait(lambda: self.log.read_text().count(" gantry: ready") == workers)

    def wait(self, check: Callable[[], object]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not check():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def text(self, accept: str = "text/plain") -> str:
        request = Request(f"http://127.0.0.1:{self.metrics}/metrics", headers={"Accept": accept})
        with urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
            return body.decode()

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of all samples with these labels, as scraped now."""
        return total(self.text(), name, **labels)

    def gantry(self, *words: str) -> str:
        """Return the output of a `gantry` command."""
        command = [sys.executable, "-m", "proxy", *words, "--endpoint", f"127.0.0.1:{self.port}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def send(self, topic: str) -> None:
        """Send a message by gRPC, over a new connection."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{self.port}", options) as channel:
            stub: Any = MessagingServiceStub(channel)
            message = d.Message(
                topic=d.Resource(name=topic),
                body=b"hello",
                system_properties=d.SystemProperties(message_id="01" + os.urandom(16).hex(), message_type=d.NORMAL),
            )
            answer = stub.SendMessage(pb.SendMessageRequest(messages=[message]), metadata=_METADATA, timeout=30)
        assert answer.status.code == Code.OK, answer.status

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()
        assert "Traceback" not in self.log.read_text()


def words(pid: int) -> list[str]:
    """Return a process' command line; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def workers(process: Process) -> dict[int, int]:
    """Return the pids of the worker processes by number."""
    pid = process.process.pid
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    lines = {child: words(child) for child in children}
    return {
        int(line[line.index("--worker") + 1].partition(":")[0]): child
        for child, line in lines.items()
        if "--worker" in line
    }


def wait_for_both(gantry: Gantry) -> None:
    """Wait until both workers serve."""
    deadline = time.monotonic() + START_TIMEOUT
    while gantry.log.read_text().count(": ready") < 2:
        assert time.monotonic() < deadline, gantry.tail()
        time.sleep(0.05)
