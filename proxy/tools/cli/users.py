"""`gantry users`: users of a users file or of brokers."""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from proxy.auth.policy import Role
from proxy.auth.stores.store import GROUP_PREFIX, NewUser, Store, UserChange, UserEntry
from proxy.tools.cli.access_stores import opened, users_file
from proxy.tools.cli.client import CommandError, UsageError
from proxy.tools.cli.confirmation import confirm
from proxy.tools.cli.output import Output


async def run(options: argparse.Namespace) -> int:
    """Run the action. Raises CommandError, OSError."""
    action = options.action or "list"
    output = Output(options.json)
    async with opened(options) as store:
        if action == "list":
            users = await store.users()
            _print(users, output)
            if not users and users_file(options) is None:
                sys.stderr.write(
                    f"gantry: the brokers behind {options.endpoint} keep no users; those of its users file"
                    " (auth.users) are listed with --file\n"
                )
        elif action == "create":
            await _create(store, options, output)
        elif action == "delete":
            confirm(options, f"delete {_kind(options.name)} {options.name} with its policies?")
            await store.delete(options.name)
            output.done(_kind(options.name), options.name, "deleted")
        else:
            await store.update(options.name, _change(options, action))
            output.done("user", options.name, "updated")
    return 0


def _print(users: Sequence[UserEntry], output: Output) -> None:
    if output.json:
        for user in users:
            output.dump(
                {
                    "user": user.user,
                    "role": user.role.value,
                    "groups": list(user.groups),
                    "enabled": user.enabled,
                    "policies": user.policies,
                    "expires": _milliseconds(user.expires),
                }
            )
        return
    rows = [
        (
            user.user,
            user.role.value,
            ", ".join(user.groups),
            "yes" if user.enabled else "no",
            user.policies,
            user.expires or "",
        )
        for user in users
    ]
    output.table(("USER", "ROLE", "GROUPS", "ENABLED", "POLICIES", "EXPIRES"), rows)


def _milliseconds(time: str | None) -> int | None:
    """Return an ISO 8601 time as milliseconds since 1970."""
    return None if time is None else round(datetime.fromisoformat(time).timestamp() * 1000)


async def _create(store: Store, options: argparse.Namespace, output: Output) -> None:
    name = options.name
    user = NewUser(
        name,
        Role(options.role),
        tuple(options.group),
        secret=_read_secret(options.secret_file),
        password=_read_secret(options.password_file),
        security_token=_read_secret(options.security_token_file),
        expires=_read_time(options.expires) if options.expires else None,
    )
    generated = await store.create(user)
    if output.json:
        output.dump({_kind(name): name, "done": "created", **({} if generated is None else {"secret_key": generated})})
        return
    output.done(_kind(name), name, "created")
    if generated is not None:
        output.line("access key: ", name)
        output.line("secret key: ", generated)


def _read_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--expires: not a time: {text!r}; write 2030-01-31T12:00:00Z") from None
    if time.tzinfo is None:
        raise UsageError(f"--expires {text}: name the zone, as in 2030-01-31T12:00:00Z")
    return time


def _change(options: argparse.Namespace, action: str) -> UserChange:
    if action != "update":
        return UserChange(enabled=action == "enable")
    change = UserChange(
        role=None if options.role is None else Role(options.role),
        groups=None if options.group is None else tuple(filter(None, options.group)),
        enabled=options.enabled,
        secret=_read_secret(options.secret_file),
        password=_read_secret(options.password_file),
        security_token="" if options.security_token_file == Path() else _read_secret(options.security_token_file),
        expires=_read_time(options.expires) if options.expires else options.expires,
    )
    if change == UserChange():
        raise UsageError(
            "name a change: --role, --group, --secret-file, --password-file, --security-token-file, --expires, "
            "--enabled or --no-enabled"
        )
    return change


def _read_secret(file: Path | None) -> str | None:
    if file is None:
        return None
    secret = file.read_text(encoding="utf-8").strip()
    if not secret:
        raise CommandError(f"{file} is empty")
    return secret


def _kind(name: str) -> str:
    return "group" if name.startswith(GROUP_PREFIX) else "user"
