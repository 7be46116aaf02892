"""Parts of new certificates. Keys are ECDSA over P-256, in PKCS #8, which Java servers read too.

Import it where a certificate is made: the packages that it needs take 60 ms.
"""

from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


def new_key() -> EllipticCurvePrivateKey:
    """Return a new private key."""
    return generate_private_key(SECP256R1())


def pem(key: EllipticCurvePrivateKey) -> bytes:
    """Return a private key in PEM, not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def name_of(common_name: str) -> x509.Name:
    """Return the name with this common name only."""
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def begin(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    """Return a certificate of a key, without extensions and signature, that is valid from `start` to `end`."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )
