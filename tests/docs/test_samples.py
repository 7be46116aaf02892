"""The sample programs of the quick start run: each sends a message and receives it, with and without credentials."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.tools.demo import SAMPLES, sample
from tests.cluster.servers import START_TIMEOUT, accepts
from tests.paths import ROOT
from tests.ports import HOST, free_port

pytestmark = pytest.mark.external

PEERS = ROOT / "tests" / "peers" / "peers"
# The client of each sample, and the output that shows that the message was sent and received.
PROGRAMS = {
    "java-remoting.java": ("java-remoting", (r"SEND_OK", r"^hello from Java$")),
    "java-grpc.java": ("java-grpc", (r"^[0-9A-F]{34}$", r"topic=demo")),
    "go-remoting.go": ("go-remoting", (r"SendResult", r"^hello from Go$")),
    "go-grpc.go": ("go-grpc", (r"^sent [0-9A-F]{34}$", r"^hello from Go$")),
    "node-grpc.cjs": ("node-grpc", (r"messageId", r"^hello from Node$")),
    "python-grpc.py": ("python-grpc", (r"message_id", r"hello from Python'$")),
}
# It needs the C++ client's library, which the test kit does not have.
NOT_RUN = {"python-remoting.py"}
# Libraries are downloaded and compiled on the first run.
_TIMEOUT = 240.0
_USER, _SECRET = "sample-user", "sample-secret-1"
_CREDENTIALS = {"ROCKETMQ_ACCESS_KEY": _USER, "ROCKETMQ_SECRET_KEY": _SECRET}
_OWN_FILE = f"""
[users.{_USER}]
secret = "{_SECRET}"
[[users.{_USER}.policies]]
resources = "Topic:demo"
actions = ["Pub", "Sub"]
[[users.{_USER}.policies]]
resources = "Group:demo-*"
actions = "Sub"
"""
_PLAIN_ACL = f"""
accounts:
- accessKey: {_USER}
  secretKey: {_SECRET}
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [demo=PUB|SUB]
"""
# The setting that names the file with the user, and its text.
_SOURCES = {"users": _OWN_FILE, "plain_acl": _PLAIN_ACL}


@dataclass(frozen=True)
class Demo:
    """A running demo: the address that clients connect to, and their environment."""

    endpoint: str
    environment: dict[str, str]


@pytest.fixture(scope="module", params=["anonymous", *_SOURCES])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Run the demo; with a source of users it requires credentials."""
    port = free_port()
    folder = tmp_path_factory.mktemp("demo")
    words = ("demo", "--dir", folder, "--listen", f"{HOST}:{port}", "--admin", "off")
    settings: dict[str, str] = {}
    if request.param in _SOURCES:
        file = folder / "source"
        file.touch(0o600)
        file.write_text(_SOURCES[request.param])
        settings[f"GANTRY_AUTH__{request.param.upper()}"] = str(file)
    with subprocess.Popen(
        [sys.executable, "-m", "proxy", *words], stdout=subprocess.DEVNULL, env=os.environ | settings
    ) as server:
        try:
            _wait_for_port(port)
            yield Demo(f"{HOST}:{port}", os.environ | (_CREDENTIALS if settings else {}))
        finally:
            server.send_signal(signal.SIGTERM)


def test_every_sample_is_run() -> None:
    assert PROGRAMS.keys() | NOT_RUN == set(SAMPLES.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_sample_sends_a_message_and_receives_it(name: str, demo: Demo, tmp_path: Path) -> None:
    client, patterns = PROGRAMS[name]
    file = tmp_path / name
    file.write_text(sample(name, demo.endpoint))
    output = _run([sys.executable, str(PEERS), "program", client, str(file)], demo.environment, patterns)
    for pattern in patterns:
        assert re.search(pattern, output, re.MULTILINE), output


def _run(command: list[str], environment: dict[str, str], patterns: tuple[str, ...]) -> str:
    """Run a program until its output has every pattern, or it ends, or the time is over; return the output."""
    lines: list[str] = []
    deadline = time.monotonic() + _TIMEOUT
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=environment
    ) as program:
        assert program.stdout is not None
        reader = threading.Thread(target=lines.extend, args=(program.stdout,))
        reader.start()
        while time.monotonic() < deadline and program.poll() is None:
            output = "".join(lines)
            if all(re.search(pattern, output, re.MULTILINE) for pattern in patterns):
                break
            time.sleep(0.1)
        # The program may have started others, as `go run` does.
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        reader.join()
    return "".join(lines)


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not accepts(port):
        assert time.monotonic() < deadline
        time.sleep(0.1)
