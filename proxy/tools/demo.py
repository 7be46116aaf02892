"""The demo: a topic of each type on an embedded broker, and a sample program for each client."""

import sys
from collections.abc import Iterator
from importlib.resources import files

import orjson

from protocol_negotiation.peer import HostPort
from proxy.embedded.backend import EmbeddedBackend
from proxy.operations.replica import Replica
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.messages import READ_AND_WRITE
from remoting.properties import MessageType
from remoting.topic_group_config import topic_fields

# The endpoint in the samples, which are complete programs.
_SAMPLE_ENDPOINT = "127.0.0.1:8080"
_BOLD, _PLAIN = "\033[1m", "\033[0m"

TOPICS = {
    "demo": MessageType.NORMAL,
    "demo-fifo": MessageType.FIFO,
    "demo-delay": MessageType.DELAY,
    "demo-transaction": MessageType.TRANSACTION,
}
# Only orderly groups receive FIFO messages in order.
ORDERLY_GROUP = "demo-fifo"

SAMPLES = {
    "Java, remoting": "java-remoting.java",
    "Java, gRPC": "java-grpc.java",
    "Go, remoting": "go-remoting.go",
    "Go, gRPC": "go-grpc.go",
    "Node, gRPC": "node-grpc.cjs",
    "Python, gRPC": "python-grpc.py",
    "Python, remoting": "python-remoting.py",
}

_BANNER = """
Gantry serves every RocketMQ client, remoting and gRPC, at {endpoint}

  topics    {topics}; a remoting client's first message creates further ones
  groups    are created with their first member; {group} is orderly
  files     {directory}
  traffic   {traffic}
  live page {admin}
  metrics   {metrics}

Ctrl-C stops it; the next start continues with the data in {directory}.
"""


def welcome(replica: Replica, admin_url: str | None) -> None:
    """Create the topics and print the banner."""
    if isinstance(replica.backend, EmbeddedBackend):
        for command in _preparations():
            replica.backend.handle(None, command)
    sys.stdout.write(banner(replica, admin_url))
    sys.stdout.flush()


def banner(replica: Replica, admin_url: str | None) -> str:
    """Return the text of the banner."""
    endpoint = _reachable(replica.addresses[0])
    text = _BANNER.format(
        endpoint=endpoint,
        topics=", ".join(TOPICS),
        group=ORDERLY_GROUP,
        directory=replica.settings.embedded.directory,
        traffic=replica.settings.traffic.directory or "no records",
        admin=_admin(admin_url),
        metrics=_metrics(replica, admin_url),
    )
    bold, plain = (_BOLD, _PLAIN) if sys.stdout.isatty() else ("", "")
    shown = "\n".join(f"{bold}--- {title}{plain}\n\n{sample(name, endpoint)}" for title, name in SAMPLES.items())
    return f"\n{shown}{text}\n"


def _admin(url: str | None) -> str:
    return "none; --admin HOST:PORT says where" if url is None else f"{url} in a browser; {url}/docs describes its API"


def _metrics(replica: Replica, admin_url: str | None) -> str:
    address = replica.settings.metrics_listen
    if address is not None:
        return f"http://{address}/metrics"
    return "none" if admin_url is None else f"{admin_url}/metrics"


def sample(name: str, endpoint: str) -> str:
    """Return a sample program for this endpoint."""
    return (files("proxy.tools") / "samples" / name).read_text().replace(_SAMPLE_ENDPOINT, endpoint)


def _reachable(address: HostPort) -> str:
    return f"127.0.0.1:{address.port}" if address.is_wildcard else str(address)


def _preparations() -> Iterator[RemotingCommand]:
    for topic, kind in TOPICS.items():
        fields = topic_fields(topic, kind, 8, 8, READ_AND_WRITE)
        yield commands.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    group = {"groupName": ORDERLY_GROUP, "consumeMessageOrderly": True}
    yield commands.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=orjson.dumps(group))
