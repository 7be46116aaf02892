"""The arguments of `gantry doctor`. Every command imports this module, so it imports nothing heavy."""

import argparse
from pathlib import Path

from protocol_negotiation.peer import HostPort

_DEFAULT_PORT = 8080


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to `gantry`."""
    parser = commands.add_parser(
        "doctor",
        help="look at an access point as a client would, and say what to change",
        description="Look at an access point as a client would, and say what to change. "
        "Exit status: 0 all is well, 1 something is worth a look, 2 something is wrong.",
    )
    parser.add_argument("endpoint", type=_endpoint, metavar="HOST:PORT", help="what clients dial (port: 8080)")
    parser.add_argument("--topic", help="a topic that the clients use")
    parser.add_argument("--group", help="a consumer group that they use")
    parser.add_argument("--write", action="store_true", help="send a message to the topic, and read it for the group")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--tls", dest="wanted", action="store_const", const="tls", help="the clients will use TLS")
    ways.add_argument("--plain", dest="wanted", action="store_const", const="plain", help="they will not")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="PEM of CAs to trust instead of the system's")
    parser.add_argument("--cert", type=Path, metavar="FILE", help="PEM of the client's certificate")
    parser.add_argument("--key", type=Path, metavar="FILE", help="PEM of its private key")
    parser.add_argument("--timeout", type=_seconds, default=5.0, metavar="S", help="seconds for each answer (5)")
    parser.add_argument("--idle", type=_seconds, metavar="S", help="be silent for so long: is the connection kept?")
    parser.add_argument("--json", action="store_true", help="print a JSON document")


def _endpoint(text: str) -> HostPort:
    try:
        parsed = HostPort.parse(text if ":" in text else f"{text}:{_DEFAULT_PORT}")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not parsed.host or not parsed.port or parsed.is_unix:
        raise argparse.ArgumentTypeError(f"needs a host and a port: {text!r}")
    return parsed


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}") from None
    if not 0 < seconds < 3600:
        raise argparse.ArgumentTypeError(f"not between 0 and 3600 seconds: {text!r}")
    return seconds
