"""The subcommands and their arguments. Commands are imported when they run, so that a server's start stays fast."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.tools import credential_options
from proxy.tools.cli import access_arguments, admin_arguments, arguments, bench_arguments
from proxy.tools.cli.command_parser import CommandParser

if TYPE_CHECKING:
    from argparse import _SubParsersAction

# The default of an option that leaves the namespace as it is.
_UNSET = argparse.SUPPRESS
DEFAULT_ENDPOINT = "127.0.0.1:8080"
_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED")

_TIME = "TIME is 500ms, 10s, 2m, 1h, 3d, or a number of seconds."
_POINT = (
    "TIME is an ISO 8601 time such as 2026-11-21T12:00, milliseconds since 1970, or a duration such as 10m for ten "
    "minutes ago."
)
_SIZE = "BYTES is 300, 4KiB, 1MB."
_SEND = f"Send messages to a topic. The body is BODY, --size, or --lines. {_TIME} {_SIZE}"
_RECEIVE = (
    "Receive messages as a member of a consumer group, print them, and acknowledge them. Ends after --max messages, or "
    f"if no message arrives for --wait. {_TIME}"
)
_TAIL = f"Print messages of a topic without consuming them. {_POINT}"
_TOPICS = "List topics, show the message queues of a topic, create, change or delete one. Without ACTION: list."
_GROUPS = (
    "List consumer groups, show members and queues of a group, create, change or delete one, reset its offsets. "
    "Without ACTION: list."
)
_EXPORT = (
    "Write topics, consumer groups with their offsets, and messages to a file. The file has one JSON object per line: "
    "a header with the version of the format, topics, groups, the messages of each queue in order, and a trailer with "
    "counts. It is compressed if its name ends in .zst or .gz."
)
_IMPORT = (
    "Create topics, groups and messages from the file of an export. Existing topics and groups stay as they are, and "
    "each difference is printed; --overwrite changes them. Messages are sent in order to the queue that they came "
    "from, or to another one if it does not exist, each with a property GANTRY_ORIGIN that names its source. A message "
    "whose origin is already in the queue is skipped, so an interrupted import can be repeated, and a second import "
    "changes nothing. A group without an offset in a queue gets that of the first message that it has not consumed "
    "by the file. An invalid line is reported by its number before anything is sent."
)


# Commands of the admin API that list without an action.
_LISTING = frozenset(("context", "clients"))


def add_commands(commands: "_SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add all subcommands."""
    for name, summary, description, fill in _COMMANDS:
        command = commands.add_parser(name, help=summary, description=description)
        fill(command)
        _add_common(command)
    for name, summary, description, content in admin_arguments.COMMANDS:
        command = commands.add_parser(name, help=summary, description=description)
        add_common = admin_arguments.add_output if name in admin_arguments.LOCAL else admin_arguments.add_common
        if callable(content):
            content(command)
        else:
            _add_actions(command, content, add_common)
            command.set_defaults(action="list" if name in _LISTING else None)
            if name == "clients":
                admin_arguments.clients(command)
        add_common(command)
        if name == "completion":
            command.set_defaults(commands=commands)


def _add_common(command: argparse.ArgumentParser, default: object = None) -> None:
    """Add the options of all clients. default: _UNSET where a parser above has them with their defaults."""

    def initial(value: object) -> Any:
        return value if default is None else default

    common = command.add_argument_group("connection and output")
    common.add_argument(
        "--endpoint",
        default=initial(os.environ.get("GANTRY_ENDPOINT", DEFAULT_ENDPOINT)),
        metavar="HOST:PORT",
        help=f"address of Gantry (default: $GANTRY_ENDPOINT, or else {DEFAULT_ENDPOINT})",
    )
    flags = {"action": "store_true", "default": initial(False)}
    common.add_argument("--tls", **flags, help="connect with TLS")
    common.add_argument(
        "--ca",
        type=Path,
        default=initial(None),
        metavar="FILE",
        help="CA certificates to trust, in PEM; implies --tls",
    )
    common.add_argument("--insecure", **flags, help="connect with TLS without verifying the certificate")
    credential_options.add_client_certificate(common, default)
    common.add_argument(
        "--timeout",
        type=arguments.positive_duration,
        default=initial(10.0),
        metavar="TIME",
        help="timeout of the connection and of each response (default: 10s)",
    )
    credential_options.add_options(common, default)
    common.add_argument("--json", **flags, help="print one JSON object per line")


def _send(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", metavar="TOPIC", help="name of the topic")
    command.add_argument("body", metavar="BODY", nargs="?", help="message body; - reads stdin, @FILE reads a file")
    command.add_argument("--tag", help="message tag")
    command.add_argument("--key", action="append", default=[], help="message key; may be repeated")
    command.add_argument(
        "--property",
        action="append",
        default=[],
        type=arguments.pair,
        metavar="K=V",
        help="user property; may be repeated",
    )
    command.add_argument(
        "--group", metavar="NAME", help="message group, whose messages are delivered in order (FIFO topics)"
    )
    command.add_argument(
        "--delay", type=arguments.duration, metavar="TIME", help="delay of the delivery (DELAY topics)"
    )
    command.add_argument("--count", type=arguments.positive, metavar="N", help="number of copies to send (default: 1)")
    command.add_argument(
        "--size", type=arguments.size, metavar="BYTES", help="size of a generated body, instead of BODY"
    )
    command.add_argument("--lines", action="store_true", help="send each non-empty line of stdin as a message")
    command.add_argument(
        "--rate", type=arguments.rate, metavar="N/s", help="maximum messages per second (default: no limit)"
    )
    command.add_argument(
        "--in-flight",
        type=arguments.positive,
        default=64,
        metavar="N",
        help="maximum concurrent requests (default: 64)",
    )


def _add_filter(command: argparse.ArgumentParser) -> None:
    chosen = command.add_mutually_exclusive_group()
    chosen.add_argument(
        "--filter",
        type=arguments.tags,
        default=arguments.Filter(),
        metavar="'TAG || TAG'",
        help="only messages with one of these tags",
    )
    chosen.add_argument(
        "--sql",
        dest="filter",
        type=arguments.sql,
        metavar="'CONDITION'",
        help="only messages that match this SQL92 condition",
    )


def _receive(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", metavar="TOPIC", help="name of the topic")
    command.add_argument("--group", required=True, metavar="G", help="consumer group")
    command.add_argument(
        "--max", type=arguments.positive, metavar="N", help="maximum number of messages (default: no limit)"
    )
    command.add_argument(
        "--wait", type=arguments.duration, default=5.0, metavar="TIME", help="maximum wait for a message (default: 5s)"
    )
    command.add_argument(
        "--ack", action=argparse.BooleanOptionalAction, default=True, help="acknowledge each message (default)"
    )
    _add_filter(command)
    command.add_argument(
        "--invisible",
        type=arguments.duration,
        default=30.0,
        metavar="TIME",
        help="invisible duration: an unacknowledged message is redelivered after it (default: 30s)",
    )
    command.add_argument("--fifo", action="store_true", help="receive in order: one unacknowledged message per queue")
    command.add_argument("--follow", action="store_true", help="continue until Ctrl-C")


def _tail(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", metavar="TOPIC", help="name of the topic")
    command.add_argument(
        "--from",
        dest="start",
        type=arguments.start,
        default=arguments.Start(last=10),
        metavar="earliest|latest|-N|TIME",
        help="starting point; -N is the last N messages (default: -10)",
    )
    command.add_argument("--queue", metavar="ID|BROKER/ID", help="only this message queue (default: all)")
    _add_filter(command)
    command.add_argument("--follow", action="store_true", help="continue with new messages until Ctrl-C")


def _all_topics(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--all", action="store_true", default=_UNSET, help="include system, retry and dead-letter topics"
    )


def _topic_name(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="name of the topic")


def _create_topic(command: argparse.ArgumentParser) -> None:
    _topic_name(command)
    command.add_argument(
        "--type", choices=_TYPES, default="NORMAL", type=str.upper, help="message type (default: NORMAL)"
    )
    command.add_argument(
        "--queues", type=arguments.queues, default=8, metavar="N", help="message queues on each broker (default: 8)"
    )


def _update_topic(command: argparse.ArgumentParser) -> None:
    _topic_name(command)
    command.add_argument("--type", choices=_TYPES, type=str.upper, help="new message type")
    command.add_argument("--queues", type=arguments.queues, metavar="N", help="message queues on each broker")
    arguments.add_confirmation(command)


def _delete_topic(command: argparse.ArgumentParser) -> None:
    _topic_name(command)
    arguments.add_confirmation(command)


def _all_groups(command: argparse.ArgumentParser) -> None:
    command.add_argument("--all", action="store_true", default=_UNSET, help="include system groups")


def _group_name(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="name of the consumer group")


def _group_configuration(command: argparse.ArgumentParser) -> None:
    _group_name(command)
    command.add_argument(
        "--fifo",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="deliver in order: one unacknowledged message per queue or message group",
    )
    command.add_argument(
        "--retries", type=arguments.retries, metavar="N", help="redeliveries before a message is a dead letter"
    )
    command.add_argument(
        "--enabled", action=argparse.BooleanOptionalAction, default=None, help="let the group consume (default)"
    )


def _delete_group(command: argparse.ArgumentParser) -> None:
    _group_name(command)
    arguments.add_confirmation(command)


def _reset_group(command: argparse.ArgumentParser) -> None:
    _group_name(command)
    command.add_argument("--topic", required=True, metavar="TOPIC", help="topic of the offsets")
    command.add_argument(
        "--to",
        required=True,
        type=arguments.target,
        metavar="earliest|latest|TIME",
        help="new position of the group",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="print the new offsets without a change and without a question"
    )
    arguments.add_confirmation(command)


# Action, summary, description, arguments.
_Actions = tuple[tuple[str, str, str, Callable[[argparse.ArgumentParser], None]], ...]

_TOPIC_ACTIONS: _Actions = (
    ("list", "list topics", "List topics with type, queues and messages.", _all_topics),
    ("show", "show the queues of a topic", "Show a topic and its message queues.", _topic_name),
    (
        "create",
        "create a topic",
        "Create a topic on every broker. Fails if the topic exists. Example: gantry topics create orders --type FIFO",
        _create_topic,
    ),
    (
        "update",
        "change a topic",
        "Change the given properties of a topic, and leave the others. Asks for confirmation if the type of messages "
        "changes, or queues with messages would be removed. Example: gantry topics update orders --queues 16",
        _update_topic,
    ),
    (
        "delete",
        "delete a topic with its messages",
        "Delete a topic with all its messages. Asks for confirmation. Topics of brokers, proxies and consumer groups "
        "are not deleted. Example: gantry topics delete orders --yes",
        _delete_topic,
    ),
)
_GROUP_ACTIONS: _Actions = (
    (
        "list",
        "list consumer groups",
        "List consumer groups with state, members, topics and lag. The state is online (it has members), offline, or "
        "disabled; `gantry top` also has the states stuck and lagging.",
        _all_groups,
    ),
    ("show", "show members and queues of a group", "Show members, offsets and lag of a consumer group.", _group_name),
    (
        "create",
        "create a group",
        "Create a consumer group on every broker. Fails if the group exists. "
        "Example: gantry groups create billing --fifo --retries 5",
        _group_configuration,
    ),
    (
        "update",
        "change a group",
        "Change the given properties of a consumer group, and leave the others. "
        "Example: gantry groups update billing --no-enabled",
        _group_configuration,
    ),
    (
        "delete",
        "delete a group with its offsets",
        "Delete a consumer group without members, and its offsets. Asks for confirmation.",
        _delete_group,
    ),
    (
        "reset",
        "move the offsets of a group",
        "Move a consumer group to another position in a topic, so that it skips or repeats messages. Asks for "
        f"confirmation. {_POINT} "
        "Example: gantry groups reset billing --topic orders --to 10m --dry-run",
        _reset_group,
    ),
)


def _topics(command: argparse.ArgumentParser) -> None:
    _all_topics(command)
    _add_actions(command, _TOPIC_ACTIONS)


def _groups(command: argparse.ArgumentParser) -> None:
    _all_groups(command)
    _add_actions(command, _GROUP_ACTIONS)


def _bench(command: argparse.ArgumentParser) -> None:
    _add_actions(command, bench_arguments.BENCH_ACTIONS)
    command.set_defaults(action=None)


def _users(command: argparse.ArgumentParser) -> None:
    _add_actions(command, access_arguments.USER_ACTIONS, _add_store)
    access_arguments.file_option(command)


def _acl(command: argparse.ArgumentParser) -> None:
    _add_actions(command, access_arguments.ACL_ACTIONS, _add_store)
    access_arguments.file_option(command)


def _add_store(command: argparse.ArgumentParser, default: object = None) -> None:
    """Add the options of commands about users, which are in a file or at a server."""
    access_arguments.file_option(command, suppress=True)
    _add_common(command, default)


def _add_actions(
    command: argparse.ArgumentParser, actions: _Actions, add_common: Callable[..., None] = _add_common
) -> None:
    """Add the actions of a command. Its common options may stand before and after the action."""
    parsers = command.add_subparsers(dest="action", metavar="ACTION", parser_class=CommandParser)
    command.set_defaults(action="list", all=False)
    for name, summary, description, fill in actions:
        action = parsers.add_parser(name, help=summary, description=description)
        fill(action)
        add_common(action, default=_UNSET)


def _export(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--topics", nargs="*", metavar="TOPIC", help="topics to export; without a name: none (default: all)"
    )
    command.add_argument(
        "--groups",
        nargs="*",
        metavar="G",
        help="groups to export; without a name: none (default: all, or those with offsets in --topics)",
    )
    command.add_argument(
        "--messages",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="export the messages of the topics (default)",
    )
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE.jsonl[.zst|.gz]",
        help="file to write; an existing one is replaced; - writes to stdout",
    )


def _import(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="file of an export")
    command.add_argument(
        "--into-source",
        action="store_true",
        help="import even if the messages are still in the queues that they were exported from",
    )
    command.add_argument(
        "--overwrite",
        action="store_true",
        help="change existing topics and groups to match the file; queues are never removed",
    )


# Name, summary for `gantry --help`, description for the command's own help, and arguments.
_COMMANDS: tuple[tuple[str, str, str, Callable[[argparse.ArgumentParser], None]], ...] = (
    ("send", "send messages", _SEND, _send),
    ("receive", "receive and acknowledge messages as a member of a consumer group", _RECEIVE, _receive),
    ("tail", "print messages of a topic without consuming them", _TAIL, _tail),
    ("topics", "list, show, create, change and delete topics", _TOPICS, _topics),
    ("groups", "list, show, create, change and delete consumer groups, and reset their offsets", _GROUPS, _groups),
    ("users", "list, create, change and delete users", access_arguments.USERS, _users),
    ("acl", "list, grant, revoke and explain permissions", access_arguments.ACL, _acl),
    ("bench", "measure sends and receives under load", bench_arguments.BENCH, _bench),
    ("export", "write topics, groups and messages to a file", _EXPORT, _export),
    ("import", "create topics, groups and messages from a file", _IMPORT, _import),
)
COMMAND_NAMES = frozenset(name for name, *_ in (*_COMMANDS, *admin_arguments.COMMANDS))
