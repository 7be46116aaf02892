"""`gantry users`: users of the users file."""

import argparse

from proxy.auth.policy import Role
from proxy.auth.sources.users_editor import GROUP_PREFIX, UsersEditor
from proxy.tools.cli.access_file import edited
from proxy.tools.cli.client import CommandError
from proxy.tools.cli.output import Output


async def run(options: argparse.Namespace) -> int:
    """Run the action. Raises CommandError, OSError."""
    action = options.action or "list"
    output = Output(options.json)
    with edited(options.file, create=action == "create") as users:
        if action == "list":
            _list(users, output)
            return 0
        if action == "create":
            _create(users, options, output)
        elif action == "delete":
            users.delete(options.name)
        else:
            users.change_user(options.name, {"enabled": action == "enable"})
        users.save()
    return 0


def _list(users: UsersEditor, output: Output) -> None:
    content = users.content
    rows = [
        (name, user.role.value, ", ".join(user.groups), "yes" if user.enabled else "no", len(user.policies))
        for name, user in sorted(content.users.items())
    ]
    rows += [
        (f"{GROUP_PREFIX}{name}", group.role.value, "", "", len(group.policies))
        for name, group in sorted(content.groups.items())
    ]
    columns = ("user", "role", "groups", "enabled", "policies")
    if output.json:
        for row in rows:
            output.dump(dict(zip(columns, row, strict=True)))
    else:
        output.table(columns, rows)


def _create(users: UsersEditor, options: argparse.Namespace, output: Output) -> None:
    role = Role(options.role)
    if options.name.startswith(GROUP_PREFIX):
        users.create_group(options.name.removeprefix(GROUP_PREFIX), role)
        return
    secret = None
    if options.secret_file is not None:
        secret = options.secret_file.read_text(encoding="utf-8").strip()
        if not secret:
            raise CommandError(f"{options.secret_file} is empty")
    created = users.create_user(options.name, role, options.group, secret)
    if output.json:
        output.dump({"user": options.name, **({"secret_key": created} if secret is None else {})})
    elif secret is None:
        output.line("access key: ", options.name)
        output.line("secret key: ", created)
