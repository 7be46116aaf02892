"""Arguments of `gantry users` and `gantry acl`."""

import argparse
from collections.abc import Callable
from pathlib import Path

from proxy.tools.cli import arguments

FILE_VARIABLE = "GANTRY_AUTH__USERS"
KEY_VARIABLE, KEY_FILE_VARIABLE = "GANTRY_AUTH__USERS_KEY", "GANTRY_AUTH__USERS_KEY_FILE"

_STORE = (
    f"They are those of a users file (--file, or ${FILE_VARIABLE}), or else of the brokers behind --endpoint, embedded "
    "or real, where --access-key must be a super user. Without ACTION: list."
)
USERS = f"List, create, change and delete users. {_STORE}"
ACL = f"List, grant, revoke and explain permissions. {_STORE}"
_SUBJECT = "user, or @ and the name of a group"


def file_option(command: argparse.ArgumentParser, *, suppress: bool = False) -> None:
    """Add the option that names the users file."""
    command.add_argument(
        "--file",
        type=Path,
        default=argparse.SUPPRESS if suppress else None,
        metavar="FILE",
        help=f"users file (auth.users; default: ${FILE_VARIABLE}, unless --endpoint or --profile is given)",
    )
    command.add_argument(
        "--users-key-file",
        type=Path,
        default=argparse.SUPPRESS if suppress else None,
        metavar="FILE",
        help="file with the key that encrypts the secrets in the users file (auth.users_key_file; default: "
        f"${KEY_FILE_VARIABLE}, or the key in ${KEY_VARIABLE})",
    )


def _no_arguments(_: argparse.ArgumentParser) -> None:
    pass


def _name(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help=_SUBJECT)


def _user(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="name of the user")


def _create_user(command: argparse.ArgumentParser) -> None:
    _name(command)
    command.add_argument(
        "--role",
        choices=("normal", "operator", "super"),
        default="normal",
        help="operator may read everything about the cluster (users files only), super may do everything "
        "(default: normal)",
    )
    command.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME",
        help="group of the user (users files only); may be repeated",
    )
    command.add_argument(
        "--secret-file", type=Path, metavar="FILE", help="file with the secret key (default: generate and print one)"
    )
    _password_option(command)
    _token_option(command)
    _expiry_option(command)


def _password_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="file with a password for the admin API, which is stored as a scrypt hash (users files only)",
    )


def _token_option(command: argparse.ArgumentParser, more: str = "") -> None:
    command.add_argument(
        "--security-token-file",
        type=Path,
        metavar="FILE",
        help="file with a security token, which each signature of the user then needs (users files only)" + more,
    )


def _expiry_option(command: argparse.ArgumentParser, more: str = "") -> None:
    command.add_argument(
        "--expires",
        metavar="TIME",
        help="when the user is disabled, such as 2030-01-31T12:00:00Z (users files only)" + more,
    )


def _update_user(command: argparse.ArgumentParser) -> None:
    _user(command)
    command.add_argument("--role", choices=("normal", "operator", "super"), help="new role")
    command.add_argument(
        "--group", action="append", metavar="NAME", help="groups of the user, instead of the present ones; '' for none"
    )
    command.add_argument("--secret-file", type=Path, metavar="FILE", help="file with the new secret key")
    _password_option(command)
    _token_option(command, "; '' to remove the present one")
    _expiry_option(command, "; '' for never")
    command.add_argument("--enabled", action=argparse.BooleanOptionalAction, help="accept the user's requests, or not")


def _delete_user(command: argparse.ArgumentParser) -> None:
    _name(command)
    arguments.add_confirmation(command)


def _subject(command: argparse.ArgumentParser) -> None:
    command.add_argument("subject", nargs="?", metavar="NAME", help=f"{_SUBJECT} (default: all)")


def _grant(command: argparse.ArgumentParser) -> None:
    command.add_argument("subject", metavar="NAME", help=_SUBJECT)
    command.add_argument(
        "actions", metavar="ACTIONS", help="Pub, Sub, Get, List, Create, Update, Delete or All, separated by commas"
    )
    command.add_argument("resource", metavar="RESOURCE", help="Topic:NAME, Group:NAME, Topic:PREFIX* or *")
    command.add_argument("--deny", action="store_true", help="deny instead of allow")
    command.add_argument(
        "--from", dest="source", action="append", default=[], metavar="NETWORK", help="only for clients of this network"
    )


def _revoke(command: argparse.ArgumentParser) -> None:
    command.add_argument("subject", metavar="NAME", help=_SUBJECT)
    command.add_argument("resource", metavar="RESOURCE", help="resource as it was granted")
    command.add_argument("--actions", metavar="ACTIONS", help="actions to revoke (default: all)")


def _explain(command: argparse.ArgumentParser) -> None:
    command.add_argument("subject", metavar="NAME", help="name of the user")
    command.add_argument("actions", metavar="ACTION", help="one action, such as Sub")
    command.add_argument("resource", metavar="RESOURCE", help="Topic:NAME, Group:NAME or Cluster:NAME")
    command.add_argument(
        "--from", dest="address", default="127.0.0.1", metavar="IP", help="address of the client (default: 127.0.0.1)"
    )
    command.add_argument("--plain-acl", type=Path, metavar="FILE", help="plain_acl.yml of ACL 1.0 as a further source")


Actions = tuple[tuple[str, str, str, Callable[[argparse.ArgumentParser], None]], ...]

USER_ACTIONS: Actions = (
    ("list", "list users and groups", "List users and groups.", _no_arguments),
    (
        "create",
        "create a user or a group",
        "Create a user, and print its secret key; or a group. Example: gantry users create alice --file users.toml",
        _create_user,
    ),
    (
        "update",
        "change a user",
        "Change a user. Example: gantry users update alice --role super --endpoint gantry:8080 --access-key admin",
        _update_user,
    ),
    (
        "delete",
        "delete a user or a group",
        "Delete a user or a group with its policies. Asks for confirmation. Example: gantry users delete alice --yes",
        _delete_user,
    ),
    ("disable", "disable a user", "Reject a user's requests.", _user),
    ("enable", "enable a user", "Accept a disabled user's requests again.", _user),
)
ACL_ACTIONS: Actions = (
    ("list", "list policies", "List the policies of all users and groups, or of one.", _subject),
    (
        "grant",
        "add a policy",
        "Add a policy. Example: gantry acl grant alice Pub,Sub 'Topic:orders*' --from 10.0.0.0/8",
        _grant,
    ),
    ("revoke", "remove actions or a policy", "Remove the policies on a resource, or some of their actions.", _revoke),
    (
        "explain",
        "explain a decision",
        "Print whether a user has a permission, and by which policy. Exit status: 0 allowed, 1 denied. "
        "Example: gantry acl explain alice Sub Topic:orders --from 10.1.2.3",
        _explain,
    ),
)
