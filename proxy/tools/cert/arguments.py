"""The arguments of `gantry cert`. Every command imports this module, so it imports nothing heavy."""

import argparse
from pathlib import Path

_DIRECTORY = Path("gantry-certs")
_DAYS = 365
# A century: certificates cannot have years after 9999.
_MAX_DAYS = 36_500


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to `gantry`."""
    parser = commands.add_parser(
        "cert",
        help="make a certificate authority for development, and certificates",
        description="Make a certificate authority for development, certificates of servers and clients, and the "
        "revocation list, and print the settings that use them. An existing authority in the directory is used again. "
        "Without options: a server certificate for this host.",
    )
    parser.add_argument(
        "--dir", type=Path, default=_DIRECTORY, metavar="DIR", help=f"directory of the files (default: {_DIRECTORY})"
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="host name or IP address of the server certificate; may be repeated (default: localhost and this host)",
    )
    parser.add_argument(
        "--name", default="server", metavar="NAME", help="name of the server certificate's files (default: server)"
    )
    parser.add_argument(
        "--client", action="append", default=[], metavar="NAME", help="make a client certificate; may be repeated"
    )
    parser.add_argument(
        "--revoke",
        action="append",
        default=[],
        metavar="NAME",
        help="add the certificate NAME.pem of the directory to the revocation list; may be repeated",
    )
    parser.add_argument("--days", type=_days, default=_DAYS, metavar="N", help=f"days of validity (default: {_DAYS})")
    parser.add_argument("--force", action="store_true", help="replace existing certificates, but not the authority")


def _days(text: str) -> int:
    """Parse a number of days. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= _MAX_DAYS:
        raise argparse.ArgumentTypeError(f"not a number of days from 1 to {_MAX_DAYS:,}: {text!r}")
    return int(text)
