"""Options of a context that Python's ssl module does not offer: session ticket keys, and a list of curves.

They are set by calling SSL_CTX_ctrl of the OpenSSL library that the ssl module itself uses. The address of OpenSSL's
context is the first field of CPython's SSLContext object (PySSLContext in Modules/_ssl.c) in all versions listed in
`_VERSIONS`; other interpreters do not support these options.
"""

import functools
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import cast

# Constants of openssl/ssl.h.
_SESS_CACHE_MODE = 44
_SET_TICKET_KEYS = 59
_SET_GROUPS_LIST = 92
# Name, HMAC key and AES key of a ticket.
TICKET_KEYS_SIZE = 80
_VERSIONS = ((3, 11), (3, 12), (3, 13), (3, 14))

_Control = Callable[[ssl.SSLContext, int, int, bytes | None], int]


@functools.cache
def _find_control() -> _Control | None:
    """Return SSL_CTX_ctrl; None if this interpreter does not support it."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in _VERSIONS:
        return None
    try:
        import _ssl
        import ctypes

        # The functions of the module's library, or of the program if the module is built in.
        library = ctypes.PyDLL(getattr(_ssl, "__file__", None))
        control, options = library.SSL_CTX_ctrl, library.SSL_CTX_get_options
        clear_errors = library.ERR_clear_error
    except (ImportError, OSError, AttributeError, MemoryError):
        return None
    control.restype = ctypes.c_long
    control.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_char_p)
    options.restype, options.argtypes = ctypes.c_uint64, (ctypes.c_void_p,)
    clear_errors.restype, clear_errors.argtypes = None, ()

    def address(context: ssl.SSLContext) -> int | None:
        # object.__basicsize__ is the size of an object's head.
        return ctypes.c_void_p.from_address(id(context) + object.__basicsize__).value

    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if options(address(probe)) != int(probe.options) & 0xFFFF_FFFF_FFFF_FFFF:
        return None

    def call(context: ssl.SSLContext, command: int, number: int, data: bytes | None) -> int:
        result = cast(int, control(address(context), command, number, data))
        # A failure must not become the reason of a later one.
        clear_errors()
        return result

    return call


def set_ticket_keys(context: ssl.SSLContext, keys: bytes) -> bool:
    """Set the keys of session tickets, `TICKET_KEYS_SIZE` bytes; return whether they are set."""
    control = _find_control()
    return control is not None and control(context, _SET_TICKET_KEYS, len(keys), keys) == 1


def disable_session_cache(context: ssl.SSLContext) -> bool:
    """Disable the cache of TLS 1.2 sessions in memory; return whether it is disabled."""
    control = _find_control()
    if control is None:
        return False
    control(context, _SESS_CACHE_MODE, 0, None)
    return True


def set_curves(context: ssl.SSLContext, names: Sequence[str]) -> bool:
    """Set the curves of key exchanges, in order of preference; return False if the interpreter cannot.

    Raises ValueError if OpenSSL does not know a curve.
    """
    control = _find_control()
    if control is None:
        if len(names) != 1:
            return False
        context.set_ecdh_curve(names[0])
        return True
    if control(context, _SET_GROUPS_LIST, 0, ":".join(names).encode()) != 1:
        raise ValueError(f"unknown curve in {':'.join(names)}")
    return True
