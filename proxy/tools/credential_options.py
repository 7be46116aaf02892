"""Options and environment variables of credentials. All commands import this module, so it imports nothing heavy."""

from pathlib import Path
from typing import Any

ACCESS_KEY, SECRET_KEY = "GANTRY_ACCESS_KEY", "GANTRY_SECRET_KEY"  # names of variables
SECURITY_TOKEN = "GANTRY_SECURITY_TOKEN"  # noqa: S105  # a name
SECRET_KEY_FILE, PROFILE, PROFILES = "GANTRY_SECRET_KEY_FILE", "GANTRY_PROFILE", "GANTRY_PROFILES"


def add_options(parser: Any, default: object = None) -> None:
    """Add the options. default: argparse.SUPPRESS where a parser above has them with their defaults."""
    parser.add_argument(
        "--access-key", default=default, metavar="NAME", help=f"user that signs the requests (default: ${ACCESS_KEY})"
    )
    parser.add_argument(
        "--secret-key-file",
        type=Path,
        default=default,
        metavar="FILE",
        help=f"file with the user's secret key (default: ${SECRET_KEY_FILE}, or the key in ${SECRET_KEY}); the token "
        f"of temporary credentials is in ${SECURITY_TOKEN}",
    )
    parser.add_argument(
        "--profile",
        default=default,
        metavar="NAME",
        help=f"context of `gantry context`, a table of ~/.config/gantry/profiles.toml (${PROFILES}) with endpoint, "
        f"access_key, secret_key_file, tls, ca, insecure, client_cert, client_key, admin and token "
        f"(default: ${PROFILE}, or the current one)",
    )


def add_client_certificate(parser: Any, default: object = None) -> None:
    """Add the options of the client certificate. default: as in `add_options`."""
    parser.add_argument(
        "--client-cert",
        type=Path,
        default=default,
        metavar="FILE",
        help="client certificate with its chain, in PEM; implies --tls",
    )
    parser.add_argument(
        "--client-key",
        type=Path,
        default=default,
        metavar="FILE",
        help="private key of --client-cert, in PEM (default: in the same file)",
    )
