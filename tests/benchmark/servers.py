"""The servers of a benchmark: the kit of real RocketMQ servers, and Gantry before them."""

import argparse
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.cluster.access import certificate
from tests.cluster.servers import accepts
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "tests" / "peers" / "peers"
HOST = "127.0.0.1"
ROUTE_REQUEST = 105
READY_TOPIC = "bench-ready"
READY_SECONDS = 60.0
ROUTE_FOUND, ROUTE_DENIED = 0, 16
# With authentication: Gantry's user at the brokers, which the kit creates, and that of the load.
GANTRY_USER = ("inner", "inner-secret-1")
LOAD_USER = ("bench", "bench-secret-1")
LOAD_GRANTS = ("Topic:*=Pub,Sub", "Group:*=Sub")
STOP_SECONDS = 20.0
DEFAULT_GANTRY = shlex.join([sys.executable, "-m", "proxy", "serve"])
RELAY_CONFIG = """global
    nbthread 1
defaults
    mode tcp
    timeout connect 5s
    timeout client 300s
    timeout server 300s
"""
AUTH_CONFIG = f"""
[cluster]
access_key = "{GANTRY_USER[0]}"
secret_key = "{GANTRY_USER[1]}"
[auth]
brokers = true
"""


class BenchmarkError(Exception):
    """A failure for a report of one line."""


@dataclass(frozen=True)
class Attributes:
    """A process between the load generator and the broker."""

    name: str
    route: str
    """HOST:PORT to ask for routes over remoting: the name server, or the proxy; empty if there is none."""
    data: str
    """HOST:PORT of a server that remoting clients talk to: the broker, or the proxy; empty if there is none."""
    pid: int | None
    """The process to measure; none when clients talk to the broker directly."""
    grpc: str = ""
    """HOST:PORT for gRPC clients; empty where nothing speaks gRPC."""


@dataclass(frozen=True)
class Kit:
    """A running instance of the kit."""

    directory: Path
    namesrv: str
    subjects: dict[str, Attributes]
    absent: dict[str, str]
    """Optional subjects that did not start, and why."""
    broker_pid: int
    auth: bool = False
    """Whether brokers and proxies require credentials."""

    def add_topic(self, name: str, queues: int = 16, kind: str = "NORMAL") -> None:
        """Create a topic."""
        _peers("topic", name, "--dir", str(self.directory), "--queues", str(queues), "--type", kind)

    def add_topics(self, name: str, number: int) -> None:
        """Create NAME-0 to NAME-(N-1) with one queue each."""
        _peers("topic", name, "--dir", str(self.directory), "--queues", "1", "--number", str(number))

    def add_group(self, name: str) -> None:
        """Create a consumer group."""
        _peers("group", name, "--dir", str(self.directory))


def _peers(*words: str) -> str:
    # In its own session, stopping survives an interrupt from the terminal.
    command = [sys.executable, str(PEERS), *words]
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    if done.returncode:
        raise BenchmarkError(done.stderr.strip() or f"peers {words[0]} failed")
    return done.stdout


@contextmanager
def kit(java: bool, rust: bool = False, auth: bool = False) -> Iterator[Kit]:
    """Start name server, broker and, on request, the official Java proxy and the Rust rival on free ports.

    The rival is optional: if it cannot be built, the rest starts without it. auth: require credentials; those of the
    load are in the environment from then on, where the load generator finds them.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as directory:
        words = ["--dir", directory]
        ports = ["--namesrv-port", "0", "--broker-port", "0", *(["--proxy-port", "0"] if java else [])]
        absent: dict[str, str] = {}
        try:
            started = _start([*words, *ports, *(["--acl"] if auth else [])], absent, rust)
            running = Kit(
                Path(started["dir"]),
                started["addresses"]["namesrv"],
                _subjects(started),
                absent,
                started["nodes"]["broker"]["pid"],
                auth,
            )
            if auth:
                grants = [word for grant in LOAD_GRANTS for word in ("--grant", grant)]
                _peers("user", *LOAD_USER, *words, *grants)
                os.environ["PEERS_ACCESS_KEY"], os.environ["PEERS_SECRET_KEY"] = LOAD_USER
            running.add_topic(READY_TOPIC)
            yield running
        finally:
            _peers("stop", *words)


def _start(words: list[str], absent: dict[str, str], rust: bool) -> dict[str, Any]:
    if rust:
        try:
            return dict(json.loads(_peers("start", *words, "--rust-proxy-port", "0")))
        except BenchmarkError as error:
            absent["rust"] = f"the Rust rival could not be built or started: {error}"
            say(absent["rust"], progress=True)
    return dict(json.loads(_peers("start", *words)))


def _subjects(started: dict[str, Any]) -> dict[str, Attributes]:
    addresses, nodes = started["addresses"], started["nodes"]
    subjects = {"none": Attributes("none", addresses["namesrv"], addresses["broker"], None)}
    if "proxy" in nodes:
        address = addresses["proxy_remoting"]
        subjects["java"] = Attributes("java", address, address, nodes["proxy"]["pid"], addresses["proxy_grpc"])
    if "rust-proxy" in nodes:
        subjects["rust"] = Attributes("rust", "", "", nodes["rust-proxy"]["pid"], addresses["rust-proxy_grpc"])
    return subjects


@contextmanager
def gantry(
    running: Kit, command: str, name: str = "gantry", settings: str = "", directory: Path = ROOT
) -> Iterator[Attributes]:
    """Start Gantry before the kit's broker; it is ready when it answers a route request.

    settings: TOML at the start of the configuration. directory: where its sources are.
    """
    port = free_port()
    words = [*shlex.split(command), "--namesrv", running.namesrv]
    if "--config" in words:
        words += ["--listen", f"{HOST}:{port}"]
    else:
        # All clients have one source address.
        file = running.directory / f"{name}.toml"
        listener = f'[[listen]]\naddress = "{HOST}:{port}"\nmax_connections_per_address = 0\n'
        tables = certificate(running.directory)[0]
        file.write_text(settings + tables + listener + (AUTH_CONFIG if running.auth else ""))
        words += ["--config", str(file)]
    log = running.directory / f"{name}-gantry.log"
    with log.open("wb") as output:
        process = subprocess.Popen(words, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        if not _becomes_ready(process, port):
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
            raise BenchmarkError(f"Gantry did not get ready ({shlex.join(words)}):\n{tail}")
        address = f"{HOST}:{port}"
        yield Attributes("gantry" if name == "gantry-workers" else name, address, address, process.pid, address)
    finally:
        end(process)


@contextmanager
def pure_sources() -> Iterator[Path]:
    """Copy the sources without the compiled modules beside them."""
    with tempfile.TemporaryDirectory(prefix="benchmark-pure-") as directory:
        for name in ("protocol_negotiation", "protos", "remoting", "grpc_gateway", "proxy", "analytics"):
            ignored = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(ROOT / name, Path(directory, name), ignore=ignored)
        yield Path(directory)


@contextmanager
def relay(running: Kit, gantry_address: str) -> Iterator[Attributes]:
    """Start HAProxy as a TCP relay: the floor of a process between client and server.

    Remoting clients reach the broker through it, gRPC clients Gantry, because brokers do not speak gRPC; only the
    relay's own cost says something there.
    """
    remoting, grpc = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
    direct = running.subjects["none"]
    file = running.directory / "haproxy.cfg"
    relays = "".join(
        f"listen {name}\n    bind {address}\n    server {name} {target}\n"
        for name, address, target in (("remoting", remoting, direct.data), ("grpc", grpc, gantry_address))
        if target
    )
    file.write_text(RELAY_CONFIG + relays)
    process = subprocess.Popen(
        ["haproxy", "-db", "-f", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not accepts(int(remoting.rpartition(":")[2])):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError("HAProxy did not get ready")
            time.sleep(0.05)
        yield Attributes("haproxy", direct.route, remoting, process.pid, grpc if gantry_address else "")
    finally:
        end(process)


def version(directory: Path = ROOT) -> str:
    """Return what `gantry --version` says: the version, and whether it is compiled."""
    done = subprocess.run([sys.executable, "-m", "proxy", "--version"], cwd=directory, capture_output=True, text=True)
    return done.stdout.strip()


def _becomes_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if _route_code(port) in (ROUTE_FOUND, ROUTE_DENIED):
                return True
        except (OSError, ValueError, struct.error):
            pass
        time.sleep(0.1)
    return False


def _route_code(port: int) -> int:
    """Return the response code of an unsigned route request."""
    fields = {"topic": READY_TOPIC, "acceptStandardJsonOnly": "true"}
    header = json.dumps(
        {"code": ROUTE_REQUEST, "language": "JAVA", "version": 493, "opaque": 1, "flag": 0, "extFields": fields}
    ).encode()
    with socket.create_connection((HOST, port), 3.0) as connection:
        connection.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
        stream = connection.makefile("rb")
        _, size = struct.unpack(">II", stream.read(8))
        return int(json.loads(stream.read(size & 0xFFFFFF))["code"])


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a server; kill it after a timeout."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def one_subject(name: str, command: str) -> Iterator[tuple[Kit, Attributes]]:
    """Start the kit and one subject."""
    with kit(java=name == "java") as running:
        if name != "gantry":
            yield running, running.subjects[name]
            return
        with gantry(running, command) as subject:
            yield running, subject


def add_gantry_option(parser: argparse.ArgumentParser) -> None:
    """Add the options that change how Gantry is started."""
    parser.add_argument(
        "--gantry-command",
        default=DEFAULT_GANTRY,
        metavar="COMMAND",
        help="starts Gantry; '--listen HOST:PORT --namesrv HOST:PORT' is added (default: python -m proxy serve)",
    )


def end_on_sigterm() -> None:
    """Let SIGTERM unwind the program, so that the servers are stopped."""

    def leave(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # A second SIGTERM must not interrupt stopping.
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def say(line: str = "", *, progress: bool = False) -> None:
    """Print a line; progress goes to standard error."""
    stream = sys.stderr if progress else sys.stdout
    stream.write(line + "\n")
    stream.flush()
