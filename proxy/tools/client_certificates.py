"""The TLS context of the commands, with the client certificate of their options."""

import argparse
import ssl


class ClientTlsError(Exception):
    """A file with certificates or a key cannot be used; the message names it."""


def client_context(options: argparse.Namespace) -> ssl.SSLContext:
    """Return the TLS context of a command's options. Raises ClientTlsError."""
    try:
        context = ssl.create_default_context(cafile=options.ca)
    except (OSError, ssl.SSLError) as error:
        raise ClientTlsError(f"{options.ca} holds no certificates that can be read: {_reason(error)}") from None
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.client_cert is None:
        if options.client_key is not None:
            raise ClientTlsError("--client-key needs --client-cert")
        return context
    try:
        context.load_cert_chain(options.client_cert, options.client_key, password=_refuse_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        files = " and ".join(str(file) for file in (options.client_cert, options.client_key) if file is not None)
        raise ClientTlsError(f"{files}: not a certificate and its key: {_reason(error)}") from None
    return context


def _refuse_password() -> str:
    """Refuse encrypted keys: OpenSSL would ask for the password on the terminal."""
    raise ValueError("the key has a password")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "one of them is missing in the PEM").replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
