"""Names of values that are secrets, wherever a name comes from a caller; and the mask that replaces such values."""

MASK = "********"
# Parts of such names, in lower case and without `_` and `-`.
_PARTS = ("secret", "password", "passwd", "passphrase", "token", "credential", "authorization", "privatekey")
# Ends of such names: users_key, apiKey. A part would also be in "keys", those of messages.
_END = "key"
_IGNORED = str.maketrans("", "", "_-")


def is_secret(name: str) -> bool:
    """Return whether a value with this name may be a secret, such as `secretKey`, `SECURITY_TOKEN` and `api-key`."""
    folded = name.translate(_IGNORED).casefold()
    return folded.endswith(_END) or any(part in folded for part in _PARTS)
