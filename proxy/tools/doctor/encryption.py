"""TLS: whether it is spoken, and what becomes of a client that verifies."""

import math
import ssl
import warnings
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from proxy.tools.doctor import wire
from proxy.tools.doctor.connection import End, Exchange, Line, NoTls, Opened, Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.rpc import Trust, pem
from proxy.tools.doctor.session import Options, Visit

# Seconds in which a server that dislikes our certificate, or the lack of one, hangs up.
_VERDICT = 0.5
# Days before the end of a certificate at which to speak up.
_SOON = 21
_OLDEST = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)
_OUTDATED = ("TLSv1", "TLSv1.1")
_EXPIRED, _NOT_YET, _WRONG_NAME = 10, 9, 62


async def encryption(visit: Visit) -> AsyncIterator[Finding]:
    """Try both ways in, and look at the certificate."""
    if visit.address is None:
        return
    context = _context(visit.options)
    line = replace(visit.plain_line, tls=context)
    plain = await _speaks(visit.plain_line)
    visit.plain = _lives(plain)
    try:
        async with line.opened() as opened:
            session = opened.tls
            assert session is not None
            certificate, version, cipher = session.getpeercert(True) or b"", session.version(), session.cipher()
            verdict = await _verdict(opened)
    except Unreachable as error:
        refused = [str(error)]
    else:
        refused = []
        visit.encrypted, visit.context = True, context
    if refused:
        if visit.plain:
            code = "tls.required" if visit.options.wanted == "tls" else "tls.none"
            yield finding(code, error=refused[0])
        return
    if verdict.end is End.CLOSED and not await _wants_alpn(line):
        visit.encrypted, visit.locked = False, True
        yield finding("tls.client_certificate", error=verdict.why)
        return
    met = {"version": version, "cipher": cipher[0] if cipher else "?"}
    yield finding("tls.both" if visit.plain else "tls.only", **met)
    if visit.options.wanted == "plain" and not visit.plain:
        yield finding("tls.plain_required")
    names: list[str] = []
    async for found in _verified(visit, certificate, names):
        yield found
    visit.trust = Trust(pem(certificate), names[0] if names else line.name, *_own(visit.options))
    outdated = await _outdated(line)
    if outdated is not None:
        yield finding("tls.outdated", version=outdated)


async def _verdict(opened: Opened) -> Exchange:
    """What the server makes of our certificate, or of there being none: told after the handshake (RFC 8446 4.4.2.4)."""
    return await opened.exchange(b"", bool, _VERDICT)


async def _wants_alpn(line: Line) -> bool:
    """Whether it is that gRPC alone is spoken: such servers hang up on whoever does not ask for it by ALPN."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        async with replace(line, tls=context).opened() as opened:
            return (await _verdict(opened)).end is not End.CLOSED
    except Unreachable:
        return False


async def _speaks(line: Line) -> Exchange:
    """What comes of the first words of a remoting client; any answer shows that plain connections are taken."""
    try:
        async with line.opened() as opened:
            return await _hello(opened)
    except Unreachable as error:
        return Exchange(b"", End.CLOSED, str(error))


async def _hello(opened: Opened) -> Exchange:
    try:
        answer = await wire.ask_route(opened, "gantry-doctor")
    except wire.Unanswered as error:
        return error.exchange
    return Exchange(answer.encode(), End.ENOUGH)


def _lives(exchange: Exchange) -> bool:
    """It answered something, though not a TLS alert, or it waits for more: it may speak gRPC only."""
    if exchange.received:
        return not exchange.received.startswith(b"\x15\x03")
    return exchange.end is End.SILENT


def _context(options: Options) -> ssl.SSLContext:
    """TLS without verifying anything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if options.certificate is not None:
        context.load_cert_chain(options.certificate, options.key)
    return context


def _own(options: Options) -> tuple[bytes | None, bytes | None]:
    """Our own chain and key."""
    if options.certificate is None:
        return None, None
    return options.certificate.read_bytes(), (options.key or options.certificate).read_bytes()


async def _verified(visit: Visit, certificate: bytes, names: list[str]) -> AsyncIterator[Finding]:
    """What a client that verifies makes of the certificate; its `names` are put down."""
    host = visit.options.endpoint.host
    facts = await _facts(visit, certificate)
    if isinstance(facts, str):
        yield finding("tls.expired", error=facts)
        return
    own = _names(facts)
    # Patterns are no use as a name to ask for.
    names += [name for name in own if not name.startswith("*")]
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(facts["notAfter"])), UTC)
    days = math.floor((until - datetime.now(UTC)).total_seconds() / 86400)
    authority = visit.options.authority
    strict = ssl.create_default_context(cafile=None if authority is None else str(authority))
    # Python is, from 3.13 on; RocketMQ's clients are not.
    strict.verify_flags &= ~ssl.VERIFY_X509_STRICT
    try:
        await _shake(replace(visit.plain_line, tls=strict))
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == _WRONG_NAME or "mismatch" in error.verify_message.lower():
            yield finding("tls.name", name=host, names=", ".join(own) or "nobody")
        else:
            yield finding("tls.untrusted", error=error.verify_message)
    else:
        yield finding("tls.trusted", name=host, until=until)
    if days < _SOON:
        yield finding("tls.expires", days=days, until=until)


def _names(facts: dict[str, Any]) -> list[str]:
    """Whom a certificate is for; the common name counts where there is nothing else, as it does for gRPC."""
    named = [str(value) for _, value in facts.get("subjectAltName", ())]
    common = [str(value) for part in facts.get("subject", ()) for key, value in part if key == "commonName"]
    return named or common


async def _facts(visit: Visit, certificate: bytes) -> dict[str, Any] | str:
    """What is in the certificate; or why it is not valid at this time. Only a trusted one is decoded, so trust it."""
    context = _context(visit.options)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    try:
        return await _shake(replace(visit.plain_line, tls=context))
    except ssl.SSLCertVerificationError as error:
        return error.verify_message


async def _shake(line: Line) -> dict[str, Any]:
    """Shake hands; the certificate's fields. Raises SSLCertVerificationError, Unreachable."""
    try:
        async with line.opened() as opened:
            session = opened.tls
            return dict((session and session.getpeercert()) or {})
    except NoTls as error:
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            raise error.__cause__ from None
        raise


async def _outdated(line: Line) -> str | None:
    """The oldest version of TLS below 1.2 that is accepted."""
    for version, name in zip(_OLDEST, _OUTDATED, strict=True):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with warnings.catch_warnings():
            # Python warns of what we are here to find.
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = version
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        try:
            async with replace(line, tls=context).opened():
                return name
        except Unreachable:
            continue
    return None
