"""`gantry acl`: policies of the users file, and the explanation of decisions."""

import argparse
from pathlib import Path

from proxy.auth.decision import decide
from proxy.auth.policy import Pattern, parse_actions
from proxy.auth.sources import own_file
from proxy.auth.sources.files import FileSource
from proxy.auth.sources.source import AuthError, Source, find_user, grants
from proxy.auth.sources.users_editor import GROUP_PREFIX, UsersEditor
from proxy.core.principal import Method, Principal
from proxy.tools.cli.access_file import edited
from proxy.tools.cli.client import CommandError, UsageError
from proxy.tools.cli.output import Output
from remoting.permissions import Permission


async def run(options: argparse.Namespace) -> int:
    """Run the action. Raises CommandError, OSError. Explaining a denial returns 1."""
    action = options.action or "list"
    output = Output(options.json)
    if action == "explain":
        return _explain(options, output)
    with edited(options.file) as users:
        if action == "list":
            _list(users, getattr(options, "subject", None), output)
            return 0
        if action == "grant":
            users.grant(
                options.subject, options.actions.split(","), options.resource, deny=options.deny, sources=options.source
            )
        else:
            actions = options.actions.split(",") if options.actions else ()
            if not users.revoke(options.subject, actions, options.resource):
                raise CommandError(f"{options.subject} has no such policy on {options.resource}")
        users.save()
    return 0


def _list(users: UsersEditor, subject: str | None, output: Output) -> None:
    content = users.content
    owners = {
        **dict(sorted(content.users.items())),
        **{f"{GROUP_PREFIX}{name}": group for name, group in sorted(content.groups.items())},
    }
    if subject is not None and subject not in owners:
        raise CommandError(f"there is no {subject}")
    rows = [
        (name, policy.effect, ",".join(policy.actions), ", ".join(policy.resources), ", ".join(policy.sources))
        for name, owner in owners.items()
        if subject in (None, name)
        for policy in owner.policies
    ]
    columns = ("user", "effect", "actions", "resources", "sources")
    if output.json:
        for row in rows:
            output.dump(dict(zip(columns, row, strict=True)))
    else:
        output.table(columns, rows)


def _explain(options: argparse.Namespace, output: Output) -> int:
    sources = _sources(options.file, options.plain_acl)
    try:
        (action,) = parse_actions([options.actions])
        pattern = Pattern.parse(options.resource)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if pattern.prefixed:
        raise UsageError("a decision is about one resource, without *")
    user = find_user(sources, options.subject)
    if user is None:
        allowed, reason = False, "no source has this user"
    elif not user.enabled:
        allowed, reason = False, f"the user is disabled ({user.origin})"
    else:
        principal = Principal(options.subject, Method.SIGNATURE)
        decision = decide(
            grants(sources, principal), Permission(pattern.kind, pattern.name, (action,)), options.address
        )
        allowed, reason = decision.allowed, decision.reason
    if output.json:
        output.dump({"allowed": allowed, "reason": reason})
    else:
        output.line(("allowed" if allowed else "denied", "bold"), f": {reason}")
    return 0 if allowed else 1


def _sources(file: Path | None, plain_file: Path | None) -> list[Source]:
    sources: list[Source] = []
    try:
        if file is not None:
            sources.append(FileSource("users file", file, own_file.parse))
        if plain_file is not None:
            # The import takes 20 ms.
            from proxy.auth.sources import plain_acl

            sources.append(FileSource("plain_acl", plain_file, plain_acl.parse, plain_acl.PATTERNS))
    except AuthError as error:
        raise CommandError(str(error)) from None
    if not sources:
        raise UsageError("name a source of users: --file FILE, --plain-acl FILE, or $GANTRY_AUTH__USERS")
    return sources
