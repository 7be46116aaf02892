"""Causes of failed TLS handshakes: a metric label, and a text for logs that names the setting."""

import re
import ssl

# Causes without an error of OpenSSL.
LOST, TIMEOUT, FLOOD = "lost", "timeout", "flood"
# As OpenSSL calls it in full handshakes.
EXPIRED = "certificate_has_expired"
_UNKNOWN = "unknown"
_VERIFICATION = "certificate_verify_failed"
_NOT_A_LABEL = re.compile(r"[^a-z0-9]+")
# X509_V_ERR_HOSTNAME_MISMATCH, _EMAIL_MISMATCH and _IP_ADDRESS_MISMATCH, whose messages contain the name.
_MISMATCHES = (62, 63, 64)

_TEXTS = {
    "unsupported_protocol": "the client offers no TLS version that tls.minimum_version permits",
    "no_shared_cipher": "the client offers no cipher of tls.ciphers",
    "no_suitable_key_share": "the client offers no curve of tls.curves",
    "no_shared_group": "the client offers no curve of tls.curves",
    "peer_did_not_return_a_certificate": "the client sent no certificate, which tls.client_auth requires",
    "tlsv1_alert_unknown_ca": "the client does not trust the authority of the certificate",
    "sslv3_alert_certificate_unknown": "the client did not accept the certificate",
    "sslv3_alert_bad_certificate": "the client did not accept the certificate, perhaps because of its names",
    "sslv3_alert_certificate_expired": "the client considers the certificate expired",
    "tlsv1_alert_protocol_version": "the client does not accept the TLS version",
    "tlsv13_alert_certificate_required": "the server requires a client certificate",
}


def explain(error: Exception) -> tuple[str, str]:
    """Return the cause of a failed handshake, one of a few hundred words, and its text for logs."""
    text = str(error) or type(error).__name__
    if not isinstance(error, ssl.SSLError):
        return LOST if isinstance(error, ConnectionError) else _UNKNOWN, text
    cause = (error.reason or _UNKNOWN).lower()
    if cause == _VERIFICATION and isinstance(error, ssl.SSLCertVerificationError):
        problem = str(getattr(error, "verify_message", "") or "")
        if getattr(error, "verify_code", 0) in _MISMATCHES:
            problem = "host name mismatch"
        if problem:
            return _NOT_A_LABEL.sub("_", problem.lower()).strip("_"), f"the certificate was refused: {problem}"
    explanation = _TEXTS.get(cause)
    return cause, text if explanation is None else f"{explanation} ({text})"
