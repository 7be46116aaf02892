"""A TLS client that can send records without data."""

import _ssl
import ctypes
import socket
import ssl

# The client sends its requests in pieces of this size.
_CHUNK = 1 << 16
_library = ctypes.PyDLL(getattr(_ssl, "__file__", None))
_library.SSL_key_update.argtypes = (ctypes.c_void_p, ctypes.c_int)
_library.SSL_do_handshake.argtypes = (ctypes.c_void_p,)


class TlsClient:
    """A TLS connection on a blocking socket, whose records are made before they are sent."""

    def __init__(self, host: str, port: int, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = version
        self.socket = socket.create_connection((host, port), timeout=30)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.socket.sendall(self._outgoing.read())
                self._incoming.write(self.socket.recv(_CHUNK))
        self.socket.sendall(self._outgoing.read())
        # The first fields of PySSLSocket (Modules/_ssl.c) are the socket and OpenSSL's connection.
        field = id(self._tls._sslobj) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)  # type: ignore[attr-defined]
        self._connection = ctypes.c_void_p.from_address(field).value

    def records(self, *pieces: bytes) -> bytes:
        """Return a record for each of the pieces of data."""
        for piece in pieces:
            self._tls.write(piece)
        return self._outgoing.read()

    def key_updates(self, count: int) -> bytes:
        """Return this number of KeyUpdate records."""
        records = bytearray()
        for _ in range(count):
            assert _library.SSL_key_update(self._connection, 0) == 1
            assert _library.SSL_do_handshake(self._connection) == 1
            # A MemoryBIO that grows takes more and more time for a record.
            records += self._outgoing.read()
        return bytes(records)

    def send(self, records: bytes) -> bool:
        """Send records; return False if the server has closed the connection."""
        try:
            self.socket.sendall(records)
        except ConnectionError:
            return False
        return True

    def wait_closed(self) -> None:
        """Wait until the server has closed the connection."""
        try:
            while self.socket.recv(_CHUNK):
                pass
        except ConnectionError:
            pass
