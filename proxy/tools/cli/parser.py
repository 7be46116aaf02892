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

_EXPORT = (
    "The file has a JSON object per line: a head with the format's version, topics, groups, messages in the order of "
    "each queue, and an end that counts them. It is compressed where its name ends in .zst."
)
_IMPORT = (
    "Topics and groups are created or updated. Messages go to the queues they came from, in their order, "
    "each with a property GANTRY_ORIGIN that names its source; one whose origin the queue already has is not sent "
    "again, so that an interrupted import can continue, and a second one changes nothing. A bad line "
    "is reported by its number before anything is sent."
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
    for name, text, fill in _COMMANDS:
        command = commands.add_parser(name, help=text, description=text)
        fill(command)
        _add_common(command)


def _add_common(command: argparse.ArgumentParser) -> None:
    common = command.add_argument_group("connection and output")
    common.add_argument(
        "--endpoint",
        default=os.environ.get("GANTRY_ENDPOINT", _ENDPOINT),
        metavar="HOST:PORT",
        help=f"the port to use (default $GANTRY_ENDPOINT, else {_ENDPOINT})",
    )
    common.add_argument("--tls", action="store_true", help="use TLS")
    common.add_argument("--ca", type=Path, metavar="FILE", help="certificates to trust (PEM); implies --tls")
    common.add_argument("--insecure", action="store_true", help="use TLS and trust any certificate")
    common.add_argument(
        "--timeout", type=arguments.duration, default=10.0, metavar="TIME", help="for each answer (default 10s)"
    )
    common.add_argument("--json", action="store_true", help="one JSON object per line")


def _send(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument("body", metavar="BODY", nargs="?", help="the body; - is stdin, @FILE a file's content")
    command.add_argument("--tag", help="the message's tag")
    command.add_argument("--key", action="append", default=[], help="a message key; may be repeated")
    command.add_argument(
        "--property", action="append", default=[], type=arguments.pair, metavar="K=V", help="may be repeated"
    )
    command.add_argument("--group", metavar="NAME", help="message group: its messages come in order (FIFO topics)")
    command.add_argument("--delay", type=arguments.duration, metavar="TIME", help="deliver after this time")
    command.add_argument("--count", type=arguments.positive, metavar="N", help="send the message N times")
    command.add_argument("--size", type=arguments.size, metavar="BYTES", help="a body of this size, instead of BODY")
    command.add_argument("--lines", action="store_true", help="one message per line of stdin that is not empty")
    command.add_argument("--rate", type=arguments.rate, metavar="N/s", help="at most so many messages per second")
    command.add_argument(
        "--in-flight", type=arguments.positive, default=64, metavar="N", help="unanswered sends (default 64)"
    )


def _add_filter(command: argparse.ArgumentParser) -> None:
    chosen = command.add_mutually_exclusive_group()
    chosen.add_argument(
        "--filter",
        type=arguments.tags,
        default=arguments.Filter(),
        metavar="'TAG || TAG'",
        help="messages with one of these tags",
    )
    chosen.add_argument("--sql", dest="filter", type=arguments.sql, metavar="'CONDITION'", help="messages it fits")


def _receive(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument("--group", required=True, metavar="G", help="the consumer group")
    command.add_argument("--max", type=arguments.positive, metavar="N", help="at most so many messages")
    command.add_argument(
        "--wait", type=arguments.duration, default=5.0, metavar="TIME", help="for a message, when none is there (5s)"
    )
    command.add_argument(
        "--ack", action=argparse.BooleanOptionalAction, default=True, help="acknowledge what was shown (default)"
    )
    _add_filter(command)
    command.add_argument(
        "--invisible",
        type=arguments.duration,
        default=30.0,
        metavar="TIME",
        help="until a message that was not acknowledged comes again (default 30s)",
    )
    command.add_argument("--fifo", action="store_true", help="in order: nothing of a queue while a message is out")
    command.add_argument("--follow", action="store_true", help="go on until Ctrl-C")


def _tail(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument(
        "--from",
        dest="start",
        type=arguments.start,
        default=arguments.Start(last=10),
        metavar="earliest|latest|-N|TIME",
        help="where to begin; -N: the last N messages (default -10)",
    )
    command.add_argument("--queue", metavar="ID|BROKER/ID", help="this message queue alone")
    _add_filter(command)
    command.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")


def _topics(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "words",
        nargs="*",
        metavar="[NAME] | create NAME | delete NAME",
        help="nothing: list them; a name: show its queues",
    )
    command.add_argument("--type", choices=_TYPES, default="NORMAL", type=str.upper, help="create: what it takes")
    command.add_argument("--queues", type=arguments.positive, default=8, metavar="N", help="create: on each broker (8)")
    command.add_argument("--all", action="store_true", help="list system, retry and dead letter topics too")


def _groups(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "words", nargs="*", metavar="[NAME] | reset NAME", help="nothing: list them; a name: show members and queues"
    )
    command.add_argument("--topic", metavar="TOPIC", help="reset: of this topic")
    command.add_argument(
        "--to", type=arguments.target, metavar="earliest|latest|TIME", help="reset: new offsets of the group"
    )
    command.add_argument("--all", action="store_true", help="list system groups too")


def _export(command: argparse.ArgumentParser) -> None:
    command.description = _EXPORT
    command.add_argument("--topics", nargs="*", metavar="TOPIC", help="these topics only; none: without topics")
    command.add_argument("--groups", nargs="*", metavar="G", help="these groups only; none: without groups")
    command.add_argument(
        "--messages", action=argparse.BooleanOptionalAction, default=True, help="the topics' messages too (default)"
    )
    command.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.jsonl[.zst]")


def _import(command: argparse.ArgumentParser) -> None:
    command.description = _IMPORT
    command.add_argument("file", type=Path, metavar="FILE")


_COMMANDS: tuple[tuple[str, str, Callable[[argparse.ArgumentParser], None]], ...] = (
    ("send", "send messages", _send),
    ("receive", "receive messages as a member of a consumer group, and acknowledge them", _receive),
    ("tail", "look at a topic's messages; changes nothing", _tail),
    ("topics", "list, show, create, delete topics", _topics),
    ("groups", "list and show consumer groups, reset their offsets", _groups),
    ("export", "write topics, groups and messages to a file", _export),
    ("import", "bring an export's topics, groups and messages in", _import),
)
COMMAND_NAMES = frozenset(name for name, _, _ in _COMMANDS)
