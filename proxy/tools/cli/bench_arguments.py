"""Arguments of `gantry bench`."""

import argparse
from collections.abc import Callable
from functools import partial

from proxy.tools.cli import arguments

BENCH = (
    "Measure throughput and latency of sends, receives or both, at any cluster or proxy. With --rate the load is open: "
    "each message is due at its time, and its latency counts from that time even if earlier ones are not answered. "
    "Without --rate each client keeps --in-flight sends in flight. The topic must exist; its messages are real."
)
_COMMON = (
    ("--clients", arguments.positive, 4, "N", "connections of each direction (default: 4)"),
    ("--duration", arguments.positive_duration, 10.0, "TIME", "measured time (default: 10s)"),
    ("--warmup", arguments.duration, 2.0, "TIME", "time before the measurement (default: 2s)"),
)


def _fill(action: str, command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", metavar="TOPIC", help="name of the topic")
    command.add_argument(
        "--protocol", choices=("remoting", "grpc"), default="remoting", help="protocol (default: remoting)"
    )
    for name, kind, default, metavar, text in _COMMON:
        command.add_argument(name, type=kind, default=default, metavar=metavar, help=text)
    if action != "receive":
        command.add_argument(
            "--rate", type=arguments.rate, metavar="N/s", help="messages per second of all clients (default: no limit)"
        )
        command.add_argument(
            "--size", type=arguments.size, default=300, metavar="BYTES", help="size of a body (default: 300)"
        )
        command.add_argument(
            "--in-flight",
            type=arguments.positive,
            default=16,
            metavar="N",
            help="maximum concurrent sends of a client (default: 16)",
        )
    else:
        command.set_defaults(rate=None, size=0, in_flight=0)
    if action != "send":
        command.add_argument(
            "--group", default="gantry-bench", metavar="G", help="consumer group (default: gantry-bench)"
        )
    else:
        command.set_defaults(group="gantry-bench")
    command.set_defaults(invisible=60.0, filter=arguments.Filter(), fifo=False)


Actions = tuple[tuple[str, str, str, Callable[[argparse.ArgumentParser], None]], ...]

BENCH_ACTIONS: Actions = (
    (
        "send",
        "measure sends",
        "Measure sends. Example: gantry bench send orders --rate 1000/s --size 1KiB --duration 30s",
        partial(_fill, "send"),
    ),
    (
        "receive",
        "measure receives and acknowledgements",
        "Receive and acknowledge messages as members of a group. Latency is that of messages which `gantry bench send` "
        "sends meanwhile, by the clocks of both hosts. Example: gantry bench receive orders --protocol grpc",
        partial(_fill, "receive"),
    ),
    (
        "both",
        "measure sends and their deliveries",
        "Send and receive, and compare the counts: exit status 1 if messages are missing. A new group begins with the "
        "messages of this run. Example: gantry bench both orders --rate 500/s",
        partial(_fill, "both"),
    ),
)
