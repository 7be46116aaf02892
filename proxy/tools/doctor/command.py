"""The command `gantry doctor`."""

import argparse
import os
import sys

import anyio

from proxy.tools.credentials import CredentialsError
from proxy.tools.credentials import read as read_credentials
from proxy.tools.doctor import report
from proxy.tools.doctor.arguments import endpoint_of
from proxy.tools.doctor.diagnosis import diagnose
from proxy.tools.doctor.findings import Finding
from proxy.tools.doctor.session import Options


def run(parsed: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    unusable = _unusable(parsed)
    if unusable is not None:
        print(f"gantry: {unusable}", file=sys.stderr)  # noqa: T201  # the output of the command
        return 2
    try:
        credentials = read_credentials(parsed)
        endpoint = endpoint_of(parsed)
    except (CredentialsError, argparse.ArgumentTypeError) as error:
        print(f"gantry: {error}", file=sys.stderr)  # noqa: T201  # the output of the command
        return 2
    options = Options(
        endpoint=endpoint,
        topic=parsed.topic,
        group=parsed.group,
        write=parsed.write,
        wanted=parsed.wanted,
        authority=parsed.ca,
        certificate=parsed.client_cert,
        key=parsed.client_key,
        timeout=parsed.timeout,
        idle=parsed.idle,
        credentials=credentials,
    )
    # gRPC's own log would interleave with the findings.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    return anyio.run(_run, options, parsed.json)


async def _run(options: Options, as_json: bool) -> int:
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    findings: list[Finding] = []
    if not as_json:
        _say(f"gantry doctor {options.endpoint}\n")
    async for found in diagnose(options):
        findings.append(found)
        if not as_json:
            _say(report.line(found, coloured))
    if as_json:
        _say(report.as_json(str(options.endpoint), findings).decode())
    else:
        _say(f"\n{report.summary(findings)}")
    return report.exit_status(findings)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _unusable(parsed: argparse.Namespace) -> str | None:
    """Return why these arguments contradict each other, or None."""
    if parsed.topic is None and (parsed.group is not None or parsed.write):
        return "--group and --write need --topic"
    if parsed.client_key is not None and parsed.client_cert is None:
        return "--key needs --cert"
    missing = next(
        (file for file in (parsed.ca, parsed.client_cert, parsed.client_key) if file and not file.is_file()), None
    )
    return None if missing is None else f"{missing}: no such file"
