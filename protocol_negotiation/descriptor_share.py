"""Share of the process's descriptors that clients' connections may use."""

import sys

# The rest is for connections to brokers and name servers, and for files: without it, a replica whose clients have all
# descriptors has no connection to its brokers after their next restart.
_SHARE = 7 / 8


def first_reserved_descriptor() -> int:
    """Return the lowest descriptor that no client's connection may have.

    A new descriptor has the lowest free number (POSIX, accept(2)), so a connection at or above it shows that at least
    the share is in use. No connections have to be counted, and files and other sockets are included.
    """
    # Windows does not have this module; it has no such limit either.
    try:
        import resource
    except ImportError:
        return sys.maxsize
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else int(limit * _SHARE)
