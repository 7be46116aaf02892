"""Hashed passwords, for the HTTP API, where a secret need not be known: `scrypt:N:R:P:SALT:HASH` (RFC 7914)."""

import binascii
import hashlib
import hmac
import os
from base64 import b64decode, b64encode

_SCHEME = "scrypt"
# 16 MiB and about 50 ms for each verification.
_COST, _BLOCK, _PARALLEL = 2**14, 8, 1
_SALT_BYTES, _HASH_BYTES = 16, 32
# Bounds on the cost that a file may ask for: 128 MiB, and 16 times the time of the default.
_MAX_COST, _MAX_BLOCK, _MAX_PARALLEL = 2**17, 8, 16
_MEMORY = 2 * 128 * _MAX_COST * _MAX_BLOCK


class PasswordHash:
    """A salted hash of a password. text: as a file of users has it. Raises ValueError for other texts."""

    __slots__ = ("_cost", "_hash", "_salt", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        scheme, *parts = text.split(":")
        try:
            cost, block, parallel = map(int, parts[:3])
            salt, digest = (b64decode(part, validate=True) for part in parts[3:])
        except (ValueError, binascii.Error):
            raise ValueError("a hashed password is scrypt:N:R:P:SALT:HASH, as `gantry users` writes it") from None
        valid = 2**12 <= cost <= _MAX_COST and cost & (cost - 1) == 0 and len(salt) >= 8 and len(digest) >= 16
        if scheme != _SCHEME or not valid or not 1 <= block <= _MAX_BLOCK or not 1 <= parallel <= _MAX_PARALLEL:
            raise ValueError("a hashed password has scrypt's parameters N (2^12 to 2^17), R (to 8) and P (to 16)")
        self._cost = cost, block, parallel
        self._salt, self._hash = salt, digest

    def verify(self, password: str) -> bool:
        """Return whether this is the password; takes the time that the parameters ask for."""
        cost, block, parallel = self._cost
        return hmac.compare_digest(_scrypt(password, self._salt, cost, block, parallel, len(self._hash)), self._hash)


def hash_password(password: str) -> str:
    """Return the text of a new hash."""
    salt = os.urandom(_SALT_BYTES)
    digest = _scrypt(password, salt, _COST, _BLOCK, _PARALLEL, _HASH_BYTES)
    parameters = f"{_SCHEME}:{_COST}:{_BLOCK}:{_PARALLEL}"
    return f"{parameters}:{b64encode(salt).decode()}:{b64encode(digest).decode()}"


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int, length: int) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"),
        salt=salt,
        n=cost,
        r=block,
        p=parallel,
        maxmem=_MEMORY,
        dklen=length,
    )
