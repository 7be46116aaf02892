"""The subcommands and their arguments. Commands are imported when they run, so that a server's start stays fast."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.tools.cli import arguments

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_ENDPOINT = "127.0.0.1:8080"
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
_TOPICS = "List topics; with NAME, show the message queues of a topic; create or delete a topic."
_GROUPS = f"List consumer groups; with NAME, show members and queues of a group; reset its offsets. {_POINT}"
_EXPORT = (
    "Write topics, consumer groups with their offsets, and messages to a file. The file has one JSON object per line: "
    "a header with the version of the format, topics, groups, the messages of each queue in order, and a trailer with "
    "counts. It is compressed if its name ends in .zst."
)
_IMPORT = (
    "Create topics, groups and messages from the file of an export. Existing topics and groups are changed to match. "
    "Messages are sent in order to the queue that they came from, or to another one if it does not exist, each with a "
    "property GANTRY_ORIGIN that names its source. A message whose origin is already in the queue is skipped, so an "
    "interrupted import can be repeated, and a second import changes nothing. An invalid line is reported by its "
    "number before anything is sent."
)


class _Intermixed(argparse.ArgumentParser):
    """A parser of one subcommand that accepts positional arguments before, between and after options.

    Python 3.11's accepts optional positional arguments only before options: not the body of `send TOPIC --tag T BODY`.
    """

    def parse_known_args(  # type: ignore[override]  # argparse's overloads differ in the type of a namespace
        self, args: list[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Do as ArgumentParser.parse_known_args does."""
        if self._inside:
            return super().parse_known_args(args, namespace)
        self._inside = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._inside = False

    # parse_known_intermixed_args calls parse_known_args.
    _inside = False


COMMAND_PARSER: type[argparse.ArgumentParser] = _Intermixed


def add_commands(commands: "_SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add all subcommands."""
    for name, summary, description, fill in _COMMANDS:
        command = commands.add_parser(name, help=summary, description=description)
        fill(command)
        _add_common(command)


def _add_common(command: argparse.ArgumentParser) -> None:
    common = command.add_argument_group("connection and output")
    common.add_argument(
        "--endpoint",
        default=os.environ.get("GANTRY_ENDPOINT", _ENDPOINT),
        metavar="HOST:PORT",
        help=f"address of Gantry (default: $GANTRY_ENDPOINT, or else {_ENDPOINT})",
    )
    common.add_argument("--tls", action="store_true", help="connect with TLS")
    common.add_argument("--ca", type=Path, metavar="FILE", help="CA certificates to trust, in PEM; implies --tls")
    common.add_argument("--insecure", action="store_true", help="connect with TLS without verifying the certificate")
    common.add_argument(
        "--timeout",
        type=arguments.duration,
        default=10.0,
        metavar="TIME",
        help="timeout of the connection and of each response (default: 10s)",
    )
    common.add_argument("--json", action="store_true", help="print one JSON object per line")


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


def _topics(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "words",
        nargs="*",
        metavar="[NAME] | create NAME | delete NAME",
        help="without a name: list topics; with a name: show its queues",
    )
    command.add_argument(
        "--type", choices=_TYPES, default="NORMAL", type=str.upper, help="create: message type (default: NORMAL)"
    )
    command.add_argument(
        "--queues",
        type=arguments.positive,
        default=8,
        metavar="N",
        help="create: message queues on each broker (default: 8)",
    )
    command.add_argument("--all", action="store_true", help="include system, retry and dead-letter topics")


def _groups(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "words",
        nargs="*",
        metavar="[NAME] | reset NAME",
        help="without a name: list groups; with a name: show its members and queues",
    )
    command.add_argument("--topic", metavar="TOPIC", help="reset: topic of the offsets")
    command.add_argument(
        "--to",
        type=arguments.target,
        metavar="earliest|latest|TIME",
        help="reset: new position of the group",
    )
    command.add_argument("--all", action="store_true", help="include system groups")


def _export(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--topics", nargs="*", metavar="TOPIC", help="topics to export; without a name: none (default: all)"
    )
    command.add_argument(
        "--groups", nargs="*", metavar="G", help="groups to export; without a name: none (default: all)"
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
        metavar="FILE.jsonl[.zst]",
        help="file to write; an existing one is replaced",
    )


def _import(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="file of an export")


# Name, summary for `gantry --help`, description for the command's own help, and arguments.
_COMMANDS: tuple[tuple[str, str, str, Callable[[argparse.ArgumentParser], None]], ...] = (
    ("send", "send messages", _SEND, _send),
    ("receive", "receive and acknowledge messages as a member of a consumer group", _RECEIVE, _receive),
    ("tail", "print messages of a topic without consuming them", _TAIL, _tail),
    ("topics", "list, show, create and delete topics", _TOPICS, _topics),
    ("groups", "list and show consumer groups, and reset their offsets", _GROUPS, _groups),
    ("export", "write topics, groups and messages to a file", _EXPORT, _export),
    ("import", "create topics, groups and messages from a file", _IMPORT, _import),
)
COMMAND_NAMES = frozenset(name for name, *_ in _COMMANDS)
