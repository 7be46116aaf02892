"""TLS: availability, and the result for clients that verify the certificate."""

import math
import ssl
import warnings
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from proxy.tools.doctor import wire
from proxy.tools.doctor.connection import Connection, End, Exchange, NoTls, Target, Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.rpc import Trust, pem
from proxy.tools.doctor.session import Diagnosis, Options

# Seconds in which a server that rejects our certificate, or its absence, closes the connection.
_REACTION_SECONDS = 0.5
# Days before the end of a certificate for a warning.
_SOON = 21
_OLDEST = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)
_OUTDATED = ("TLSv1", "TLSv1.1")
# X509_V_ERR_… of OpenSSL.
_WRONG_NAME, _SELF_SIGNED = 62, 18


async def check_tls(diagnosis: Diagnosis) -> AsyncIterator[Finding]:
    """Try plain and TLS, and check the certificate."""
    if diagnosis.address is None:
        return
    context = _context(diagnosis.options)
    line = replace(diagnosis.plain_target, tls=context)
    plain = await _accepts_plain(diagnosis.plain_target)
    diagnosis.plain = _responds(plain)
    try:
        async with line.opened() as opened:
            session = opened.tls
            assert session is not None
            certificate, version, cipher = session.getpeercert(True) or b"", session.version(), session.cipher()
            verdict = await _certificate_reaction(opened)
    except Unreachable as error:
        refused = [str(error)]
    else:
        refused = []
        diagnosis.encrypted, diagnosis.context = True, context
    if refused:
        if diagnosis.plain:
            code = "tls.required" if diagnosis.options.wanted == "tls" else "tls.none"
            yield finding(code, error=refused[0])
        return
    if verdict.end is End.CLOSED and not await _wants_alpn(line, diagnosis.options):
        diagnosis.encrypted, diagnosis.locked = False, True
        refused_code = "client_certificate" if diagnosis.options.certificate is None else "client_certificate_refused"
        yield finding(f"tls.{refused_code}", error=verdict.why)
        return
    met = {"version": version, "cipher": cipher[0] if cipher else "?"}
    yield finding("tls.both" if diagnosis.plain else "tls.only", **met)
    if diagnosis.options.wanted == "plain" and not diagnosis.plain:
        yield finding("tls.plain_required")
    names: list[str] = []
    async for found in _verified(diagnosis, certificate, names):
        yield found
    diagnosis.trust = Trust(pem(certificate), names[0] if names else line.name, *_own_certificate(diagnosis.options))
    outdated = await _oldest_accepted(line)
    if outdated is not None:
        yield finding("tls.outdated", version=outdated)


async def _certificate_reaction(opened: Connection) -> Exchange:
    """Return the server's reaction to our certificate, or to none, after the handshake (RFC 8446 4.4.2.4)."""
    return await opened.exchange(b"", bool, _REACTION_SECONDS)


async def _wants_alpn(line: Target, options: Options) -> bool:
    """Return whether the server serves only gRPC: such servers close connections without ALPN."""
    context = _context(options)
    context.set_alpn_protocols(["h2"])
    try:
        async with replace(line, tls=context).opened() as opened:
            return (await _certificate_reaction(opened)).end is not End.CLOSED
    except Unreachable:
        return False


async def _accepts_plain(line: Target) -> Exchange:
    """Return the result of a remoting request; any response shows that plain connections are accepted."""
    try:
        answer = await wire.ask_route(line, wire.UNUSED_TOPIC)
    except wire.Unanswered as error:
        return error.exchange
    except Unreachable as error:
        return Exchange(b"", End.CLOSED, str(error))
    return Exchange(answer.encode(), End.ENOUGH)


def _responds(exchange: Exchange) -> bool:
    """Return whether the server responded, other than by a TLS alert, or waits for more: it may serve only gRPC."""
    if exchange.received:
        return not exchange.received.startswith(b"\x15\x03")
    return exchange.end is End.SILENT


def _context(options: Options) -> ssl.SSLContext:
    """Return a context for TLS without verification."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if options.certificate is not None:
        context.load_cert_chain(options.certificate, options.key)
    return context


def _own_certificate(options: Options) -> tuple[bytes | None, bytes | None]:
    """Load our own chain and key."""
    if options.certificate is None:
        return None, None
    return options.certificate.read_bytes(), (options.key or options.certificate).read_bytes()


async def _verified(diagnosis: Diagnosis, certificate: bytes, names: list[str]) -> AsyncIterator[Finding]:
    """Verify the certificate as a client does; record its `names`."""
    host = diagnosis.options.endpoint.host
    facts = await _facts(diagnosis, certificate)
    if isinstance(facts, str):
        yield finding("tls.expired", error=facts)
        return
    own = _names(facts)
    # A pattern cannot serve as the name to request.
    names += [name for name in own if not name.startswith("*")]
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(facts["notAfter"])), UTC)
    days = math.floor((until - datetime.now(UTC)).total_seconds() / 86400)
    authority = diagnosis.options.authority
    strict = ssl.create_default_context(cafile=None if authority is None else str(authority))
    # Python enforces it from 3.13 on; RocketMQ's clients do not.
    strict.verify_flags &= ~ssl.VERIFY_X509_STRICT
    try:
        await _handshake(replace(diagnosis.plain_target, tls=strict))
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == _WRONG_NAME or "mismatch" in error.verify_message.lower():
            yield finding("tls.name", name=host, names=", ".join(own) or "none")
        elif error.verify_code == _SELF_SIGNED and diagnosis.options.wanted != "tls":
            yield finding("tls.self_signed")
        else:
            yield finding("tls.untrusted", error=error.verify_message)
    else:
        yield finding("tls.trusted", name=host, until=until)
    if days < _SOON:
        yield finding("tls.expires", days=days, until=until)


def _names(facts: dict[str, Any]) -> list[str]:
    """Return the names of a certificate; the common name counts only without others, as for gRPC."""
    named = [str(value) for _, value in facts.get("subjectAltName", ())]
    common = [str(value) for part in facts.get("subject", ()) for key, value in part if key == "commonName"]
    return named or common


async def _facts(diagnosis: Diagnosis, certificate: bytes) -> dict[str, Any] | str:
    """Return the certificate's contents, or why it is not valid now. Python decodes only trusted certificates, so trust
    it.
    """
    context = _context(diagnosis.options)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    try:
        return await _handshake(replace(diagnosis.plain_target, tls=context))
    except ssl.SSLCertVerificationError as error:
        return error.verify_message


async def _handshake(line: Target) -> dict[str, Any]:
    """Shake hands; return the certificate's fields. Raises SSLCertVerificationError, Unreachable."""
    try:
        async with line.opened() as opened:
            session = opened.tls
            return dict((session and session.getpeercert()) or {})
    except NoTls as error:
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            raise error.__cause__ from None
        raise


async def _oldest_accepted(line: Target) -> str | None:
    """Return the oldest accepted TLS version below 1.2."""
    for version, name in zip(_OLDEST, _OUTDATED, strict=True):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with warnings.catch_warnings():
            # Python warns about the versions that this check looks for.
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = version
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        try:
            async with replace(line, tls=context).opened():
                return name
        except Unreachable:
            continue
    return None
