"""Encrypted secrets in the users file: `aes256gcm:` and base64 of nonce, ciphertext and tag.

The cipher is AES-256-GCM (NIST SP 800-38D). The place of a secret is authenticated with it: the secret of one user does
not decrypt as that of another.
"""

import binascii
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.auth.sources.own_file import ENCRYPTED
from proxy.settings.secret_files import read_secret

_KEY_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 12, 16


class SecretCipher:
    """Encrypts with the first key, and decrypts with every one. Raises ValueError for a text that is no list of keys.

    text: keys of 32 bytes in base64, one per line or separated by blanks. setting: its name, for errors.
    """

    def __init__(self, text: str, setting: str) -> None:
        self._setting = setting
        self._keys = [AESGCM(_key(part, setting)) for part in text.split()]
        if not self._keys:
            raise ValueError(f"{setting}: there is no key")

    def encrypt(self, secret: str, place: str) -> str:
        """Return the text for the file. place: the secret's key there, such as `alice.secret`."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._keys[0].encrypt(nonce, secret.encode(), place.encode())
        return ENCRYPTED + b64encode(nonce + sealed).decode()

    def decrypt(self, text: str, place: str) -> str:
        """Return the secret of a text of the file. Raises ValueError, which names the setting and no secret."""
        secret = self._decrypt(text, place, self._keys)
        if secret is None:
            raise ValueError(f"it is not encrypted with a key of {self._setting}, or for another user")
        return secret

    def is_current(self, text: str, place: str) -> bool:
        """Return whether a text of the file is encrypted with the first key."""
        return text.startswith(ENCRYPTED) and self._decrypt(text, place, self._keys[:1]) is not None

    @staticmethod
    def _decrypt(text: str, place: str, keys: Sequence[AESGCM]) -> str | None:
        try:
            data = b64decode(text.removeprefix(ENCRYPTED), validate=True)
        except binascii.Error:
            return None
        if len(data) < _NONCE_BYTES + _TAG_BYTES:
            return None
        for key in keys:
            try:
                return key.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], place.encode()).decode()
            except InvalidTag:
                continue
        return None


def _key(text: str, setting: str) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ValueError(f"{setting}: a key is 32 random bytes in base64, as `openssl rand -base64 32` prints them")
    return key


def read_cipher(text: str | None, file: Path | None) -> SecretCipher:
    """Return the cipher of the settings auth.users_key and auth.users_key_file, one of which is given.

    Raises ValueError, which names the setting.
    """
    if file is None:
        return SecretCipher(text or "", "auth.users_key")
    keys = read_secret(None, file, "auth.users_key_file")
    return SecretCipher(keys, f"auth.users_key_file {file}")
