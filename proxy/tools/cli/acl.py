"""`gantry acl`: policies of a users file or of brokers, and the explanation of decisions."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from proxy.auth.policy import Directory
from proxy.auth.sources.files import FileSource
from proxy.auth.sources.source import AuthError, Source
from proxy.auth.stores.store import Grant, PolicyEntry, explain
from proxy.settings.replication import SyncSettings
from proxy.tools.cli.access_stores import opened, users_file
from proxy.tools.cli.client import CommandError, UsageError
from proxy.tools.cli.output import Output


async def run(options: argparse.Namespace) -> int:
    """Run the action. Raises CommandError, OSError. Explaining a denial returns 1."""
    action = options.action or "list"
    output = Output(options.json)
    if action == "explain":
        return await _explain(options, output)
    async with opened(options) as store:
        if action == "list":
            _print(await store.policies(getattr(options, "subject", None)), output)
        elif action == "grant":
            grant = Grant(
                tuple(options.actions.split(",")), options.resource, deny=options.deny, sources=tuple(options.source)
            )
            await store.grant(options.subject, grant)
            output.done("user", options.subject, "granted")
        else:
            actions = options.actions.split(",") if options.actions else ()
            await store.revoke(options.subject, actions, options.resource)
            output.done("user", options.subject, "revoked")
    return 0


def _print(policies: Sequence[PolicyEntry], output: Output) -> None:
    if output.json:
        for policy in policies:
            output.dump(asdict(policy))
        return
    rows = [
        (
            policy.user,
            f"{policy.effect}, default" if policy.default else policy.effect,
            ",".join(policy.actions),
            ", ".join(policy.resources),
            ", ".join(policy.sources),
        )
        for policy in policies
    ]
    output.table(("USER", "EFFECT", "ACTIONS", "RESOURCES", "SOURCES"), rows)


async def _explain(options: argparse.Namespace, output: Output) -> int:
    sources = await _sources(options)
    try:
        decision = explain(
            sources, options.subject, options.actions, options.resource, options.address, SyncSettings().topics
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if output.json:
        output.dump({"allowed": decision.allowed, "reason": decision.reason})
    else:
        output.line(("allowed" if decision.allowed else "denied", "bold"), f": {decision.reason}")
    return 0 if decision.allowed else 1


@dataclass(slots=True)
class _Loaded:
    """A source that was read once."""

    name: str
    directory: Directory
    error: str | None = None

    async def refresh(self) -> bool:
        """Return False: nothing is read again."""
        return False


async def _sources(options: argparse.Namespace) -> list[Source]:
    sources: list[Source] = []
    file = users_file(options)
    if file is not None or options.plain_acl is None:
        place = f"the users that the brokers behind {options.endpoint} keep" if file is None else str(file)
        async with opened(options) as store:
            sources.append(_Loaded(place, await store.directory()))
    if options.plain_acl is not None:
        # The import takes 20 ms.
        from proxy.auth.sources import plain_acl

        try:
            sources.append(FileSource("plain_acl", options.plain_acl, plain_acl.parse, plain_acl.PATTERNS))
        except AuthError as error:
            raise CommandError(str(error)) from None
    return sources
