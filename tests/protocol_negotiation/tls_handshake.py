"""TLS handshakes in memory, and the sessions that clients reuse."""

import ssl

from proxy.tools.cert.authority import Authority, Issued


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Shake hands in memory; return the server's and the client's connection."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    connections = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="rocketmq.test", session=session),
    )
    for _ in range(4):
        for connection in connections:
            try:
                connection.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return connections


def client_context(
    issuer: Authority, client: Issued | None = None, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=issuer.certificate_file)
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def session_with(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> ssl.SSLSession:
    received = connected(server, client, session).session
    assert received is not None
    return received


def reuses(server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession) -> bool:
    return connected(server, client, session).session_reused


def connected(server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLObject:
    ends, connection = handshake(server, client, session)
    ends.write(b"x")
    assert connection.read(1) == b"x"
    return connection
