"""The arguments of `gantry doctor`. Every command imports this module, so it imports nothing heavy."""

import argparse
import os
from pathlib import Path

from protocol_negotiation.peer import HostPort
from proxy.tools import credential_options

_DEFAULT_PORT = 8080
_DEFAULT_ENDPOINT = "127.0.0.1:8080"


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to `gantry`."""
    parser = commands.add_parser(
        "doctor",
        help="check an access point as its clients see it, and name remedies",
        description="Check an access point as its clients see it, and name remedies. "
        "Exit status: 0 without problems, 1 with warnings, 2 with failures.",
    )
    parser.add_argument(
        "endpoint",
        nargs="?",
        type=_endpoint,
        metavar="HOST:PORT",
        help="endpoint of clients, with port 8080 if none is given "
        f"(default: $GANTRY_ENDPOINT, or else {_DEFAULT_ENDPOINT})",
    )
    parser.add_argument("--topic", help="topic that the clients use")
    parser.add_argument("--group", help="consumer group that the clients use")
    parser.add_argument("--write", action="store_true", help="send a message to --topic, and read it as --group")
    transport = parser.add_mutually_exclusive_group()
    transport.add_argument("--tls", dest="wanted", action="store_const", const="tls", help="clients will use TLS")
    transport.add_argument(
        "--plain", dest="wanted", action="store_const", const="plain", help="clients will not use TLS"
    )
    parser.add_argument(
        "--ca", type=Path, metavar="FILE", help="CA certificates to trust, in PEM (default: those of the system)"
    )
    parser.add_argument(
        *("--cert", "--client-cert"),
        dest="client_cert",
        type=Path,
        metavar="FILE",
        help="certificate of the client, in PEM",
    )
    parser.add_argument(
        *("--key", "--client-key"),
        dest="client_key",
        type=Path,
        metavar="FILE",
        help="private key of --cert, in PEM",
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=5.0, metavar="S", help="timeout of each response, in seconds (default: 5)"
    )
    parser.add_argument(
        "--idle", type=_seconds, metavar="S", help="check that a connection survives so many idle seconds"
    )
    credential_options.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON document")


def endpoint_of(options: argparse.Namespace) -> HostPort:
    """Return the endpoint of the argument or the applied profile, or the default. Raises ArgumentTypeError."""
    given: HostPort | str = options.endpoint or os.environ.get("GANTRY_ENDPOINT") or _DEFAULT_ENDPOINT
    return _endpoint(given) if isinstance(given, str) else given


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
