"""Running of `gantry cert`."""

import argparse
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from proxy.tools.cert.authority import Authority, CertificateError, Issued

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def run(options: argparse.Namespace) -> int:
    """Make the certificates and print the settings that use them; return 0: done, 1: failed."""
    try:
        lines = list(_make(options))
    except CertificateError as error:
        sys.stderr.write(f"gantry: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"gantry: {error.filename or options.dir}: {error.strerror or error}\n")
        return 1
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _make(options: argparse.Namespace) -> Iterator[str]:
    authority = Authority(options.dir)
    verb = "made" if authority.created else "used"
    yield f"{verb} the authority {authority.certificate_file}"
    if options.host or not (options.client or options.revoke):
        hosts = options.host or list(dict.fromkeys((*_LOOPBACK, socket.gethostname())))
        server = authority.issue_server(options.name, hosts, options.days, replace=options.force)
        yield f"made {server.certificate} for {', '.join(hosts)}"
        yield from _server_settings(authority, server)
    clients = []
    for name in options.client:
        clients.append(authority.issue_client(name, options.days, replace=options.force))
        yield f"made {clients[-1].certificate} with the subject CN={name}"
    if clients:
        yield from _client_settings(authority, clients[0])
    for name in options.revoke:
        authority.revoke(name, options.days)
        yield f"revoked {options.dir / name}.pem in {authority.crl_file}"


def _server_settings(authority: Authority, server: Issued) -> Iterator[str]:
    yield "\n# settings of Gantry\n[tls]"
    yield f'certificate = "{_path(server.certificate)}"\nkey = "{_path(server.key)}"'
    yield "# to require client certificates:"
    yield f'# mode = "enforcing"\n# client_auth = "required"\n# client_ca = "{_path(authority.certificate_file)}"'
    yield f'# crl = "{_path(authority.crl_file)}"\n'
    yield "# a client that trusts this authority"
    yield f"gantry topics --ca {_path(authority.certificate_file)}\n"


def _client_settings(authority: Authority, client: Issued) -> Iterator[str]:
    yield "\n# settings of Gantry, to present a client certificate to brokers\n[cluster_tls]\nenabled = true"
    yield f'ca = "{_path(authority.certificate_file)}"'
    yield f'certificate = "{_path(client.certificate)}"\nkey = "{_path(client.key)}"\n'


def _path(path: Path) -> Path:
    return path.resolve()
