"""Arguments of the commands that use the admin API, and of contexts and completion."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxy.tools import credential_options
from proxy.tools.cli import arguments

_POINT = "ISO 8601 time, milliseconds since 1970, or a duration such as 10m for ten minutes ago"
# Dead letters of a list, and of a resend without ids, unless --max or --all is given.
DEAD_LETTERS = 32
Fill = Callable[[argparse.ArgumentParser], None]


def add_common(command: argparse.ArgumentParser, default: object = None) -> None:
    """Add the options of all commands that use the admin API. default: SUPPRESS where a parser above has them."""

    def initial(value: object) -> Any:
        return value if default is None else default

    common = command.add_argument_group("admin API and output")
    common.add_argument(
        "--admin",
        default=initial(None),
        metavar="URL",
        help="address of the admin API (default: $GANTRY_ADMIN, or else http://127.0.0.1:8090)",
    )
    common.add_argument("--token", default=initial(None), help="bearer token (default: $GANTRY_ADMIN_TOKEN)")
    common.add_argument(
        "--ca", type=Path, default=initial(None), metavar="FILE", help="CA certificates to trust, in PEM"
    )
    flags = {"action": "store_true", "default": initial(False)}
    common.add_argument("--insecure", **flags, help="do not verify the certificate")
    credential_options.add_client_certificate(common, default)
    common.add_argument(
        "--timeout",
        type=arguments.positive_duration,
        default=initial(30.0),
        metavar="TIME",
        help="timeout of each response (default: 30s)",
    )
    credential_options.add_options(common, default)
    common.add_argument("--json", **flags, help="print one JSON object per line")


def _nothing(_: argparse.ArgumentParser) -> None:
    pass


def _topic(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", metavar="TOPIC", help="name of the topic")


def _message(command: argparse.ArgumentParser) -> None:
    _topic(command)
    command.add_argument("id", metavar="ID", help="unique message id, or offset message id")


def _list_messages(command: argparse.ArgumentParser) -> None:
    _topic(command)
    command.add_argument("--broker", metavar="NAME", help="only this broker")
    command.add_argument("--queue", type=arguments.queue, metavar="[BROKER/]N", help="only this message queue")
    command.add_argument("--offset", type=arguments.count, metavar="N", help="from this offset of one queue on")
    command.add_argument("--from", dest="begin", type=arguments.point, metavar="TIME", help=f"stored since: {_POINT}")
    command.add_argument("--to", dest="end", type=arguments.point, metavar="TIME", help=f"stored until: {_POINT}")
    command.add_argument("--key", help="only messages with this key")
    chosen = command.add_mutually_exclusive_group()
    chosen.add_argument("--filter", dest="tag", metavar="'TAG || TAG'", help="only messages with one of these tags")
    chosen.add_argument("--sql", metavar="'CONDITION'", help="only messages that match this SQL92 condition")
    command.add_argument("--oldest", action="store_true", help="the oldest first (default: the newest first)")
    command.add_argument(
        "--max", type=arguments.positive, default=20, metavar="N", help="maximum number of messages (default: 20)"
    )


def _show_message(command: argparse.ArgumentParser) -> None:
    _message(command)
    command.add_argument(
        "--body",
        choices=("auto", "text", "json", "hex", "base64", "protobuf"),
        default="auto",
        help="form of the body (default: auto)",
    )
    command.add_argument("--type", dest="message_type", metavar="NAME", help="protobuf message type of the body")


def _resend_message(command: argparse.ArgumentParser) -> None:
    _message(command)
    command.add_argument("--group", metavar="NAME", help="only to this consumer group (default: to the topic)")
    command.add_argument(
        "--to",
        choices=("auto", "retry", "pop_retry"),
        help="the group's retry topic: retry for remoting push consumers, pop_retry for gRPC and others that pop "
        "(default: auto, as its members consume)",
    )
    arguments.add_confirmation(command)


def _group(command: argparse.ArgumentParser) -> None:
    command.add_argument("group", metavar="GROUP", help="name of the consumer group")


def _dead_letters(command: argparse.ArgumentParser) -> None:
    _group(command)
    _add_max(command, DEAD_LETTERS)
    _add_before(command)


def _add_max(command: argparse._ActionsContainer, default: int | None) -> None:
    command.add_argument(
        "--max",
        "--limit",
        type=arguments.positive,
        default=default,
        metavar="N",
        help=f"maximum number (default: {DEAD_LETTERS})",
    )


def _add_before(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--before", metavar="CURSOR", help="only those older than the last of a list, which prints the cursor"
    )


def _dead_letter(command: argparse.ArgumentParser) -> None:
    _group(command)
    command.add_argument("id", metavar="ID", help="unique message id")


def _resend_dead_letters(command: argparse.ArgumentParser) -> None:
    _group(command)
    command.add_argument("ids", metavar="ID", nargs="*", help="unique message ids (default: the newest, up to --max)")
    number = command.add_mutually_exclusive_group()
    # None: not given, which ids require.
    _add_max(number, None)
    number.add_argument("--all", action="store_true", help="all dead letters, in steps of 100")
    _add_before(command)
    command.add_argument(
        "--to",
        choices=("auto", "retry", "pop_retry", "topic"),
        default="auto",
        help="target: the group's retry topic, or the topic with all its groups (default: auto)",
    )
    arguments.add_confirmation(command)


def _purge(command: argparse.ArgumentParser) -> None:
    _group(command)
    arguments.add_confirmation(command)


def _trace(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help="unique message id")
    command.add_argument("--topic", metavar="NAME", help="trace topic (default: that of the server)")


def clients(command: argparse.ArgumentParser, default: object = None) -> None:
    """Add the options of the list of clients. default: SUPPRESS where a parser above has them."""
    _protocol(command, default)


def _protocol(command: argparse.ArgumentParser, default: object = None) -> None:
    # set_defaults would store SUPPRESS as a value.
    command.add_argument(
        "--protocol", choices=("remoting", "grpc"), default=default, help="only clients of this protocol"
    )


def _listed_clients(command: argparse.ArgumentParser) -> None:
    clients(command, argparse.SUPPRESS)


def _client(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="CLIENT", help="client id, as in the list of clients")


def _connections(command: argparse.ArgumentParser) -> None:
    _protocol(command)
    command.add_argument("--group", metavar="NAME", help="only members of this group")
    command.add_argument(
        "--sort",
        choices=[sign + key for key in _CONNECTION_KEYS for sign in ("", "-")],
        default="age",
        metavar="KEY",
        help="age, address, in_flight, bytes_in, bytes_out or idle; the greatest first with -, as in --sort=-age",
    )


# Sort keys of the API's list of connections.
_CONNECTION_KEYS = ("age", "address", "in_flight", "bytes_in", "bytes_out", "idle")


def _top(command: argparse.ArgumentParser) -> None:
    command.add_argument("--once", action="store_true", help="print once and exit")
    command.add_argument(
        "--interval",
        type=arguments.positive_duration,
        default=2.0,
        metavar="TIME",
        help="time between updates (default: 2s)",
    )


def _drain(command: argparse.ArgumentParser) -> None:
    command.add_argument("--undo", action="store_true", help="end the drain, without a question")
    arguments.add_confirmation(command)


def _check_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", nargs="?", type=Path, metavar="FILE", help="TOML file with settings")
    command.add_argument("--config", type=Path, metavar="FILE", help="the same, as for `gantry serve`")


def _shell(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=("bash", "zsh", "fish"), help="shell of the script")


def _context_name(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="name of the context")


def _add_context(command: argparse.ArgumentParser) -> None:
    _context_name(command)
    command.add_argument("--endpoint", metavar="HOST:PORT", help="address of Gantry")
    command.add_argument("--admin", metavar="URL", help="address of the admin API")
    command.add_argument("--token-file", type=Path, metavar="FILE", help="file with the bearer token of the admin API")
    command.add_argument("--access-key", metavar="NAME", help="user that signs the requests")
    command.add_argument("--secret-key-file", type=Path, metavar="FILE", help="file with the user's secret key")
    command.add_argument("--tls", action="store_true", help="connect with TLS")
    command.add_argument("--ca", type=Path, metavar="FILE", help="CA certificates to trust, in PEM")
    command.add_argument("--insecure", action="store_true", help="do not verify certificates")
    command.add_argument("--force", action="store_true", help="replace all values of an existing context")
    credential_options.add_client_certificate(command)


# Action, summary, description, arguments.
Actions = tuple[tuple[str, str, str, Fill], ...]

MESSAGE_ACTIONS: Actions = (
    (
        "list",
        "list messages of a topic",
        "List messages by queue, time, offset, key, tag or SQL, without consuming them. "
        "Example: gantry message list orders --from 10m --filter paid",
        _list_messages,
    ),
    (
        "show",
        "show a message with its properties and body",
        "Show a message. Example: gantry message show orders 7F000001000018B4AAC2000000000001 --body hex",
        _show_message,
    ),
    (
        "groups",
        "show where a message went",
        "Show for each consumer group whether the message was consumed, waits, was retried, or is a dead letter.",
        _message,
    ),
    (
        "resend",
        "send a copy of a message",
        "Send a copy of a message to its topic, or to one consumer group. Asks for confirmation. "
        "Example: gantry message resend orders 7F000001000018B4AAC2000000000001 --group billing",
        _resend_message,
    ),
)
DLQ_ACTIONS: Actions = (
    (
        "list",
        "list dead letters",
        "List the dead letters of a group, the newest first. Example: gantry dlq list billing --max 500",
        _dead_letters,
    ),
    ("show", "show a dead letter", "Show a dead letter with its properties and body.", _dead_letter),
    (
        "resend",
        "send dead letters to their group again",
        "Send dead letters to their group again; they stay in the dead letter queue. Asks for confirmation. "
        "Example: gantry dlq resend billing --all",
        _resend_dead_letters,
    ),
    ("purge", "delete all dead letters", "Delete the dead letter queue of a group. Asks for confirmation.", _purge),
)
CLIENT_ACTIONS: Actions = (
    ("list", "list clients", "List the clients that are connected, of both protocols.", _listed_clients),
    ("show", "show a client", "Show a client: its connections, groups, language and version.", _client),
)
CONFIG_ACTIONS: Actions = (
    (
        "check",
        "check the settings without starting",
        "Check a settings file, $GANTRY_ variables and the files that the settings name, without starting a server. "
        "Exit status: 0 valid, 2 not valid. Example: gantry config check gantry.toml",
        _check_config,
    ),
    (
        "show",
        "show the settings that differ from their defaults",
        "Show the settings that a server with this file and these variables would have, with their origin, secrets "
        "masked.",
        _check_config,
    ),
)
CONTEXT_ACTIONS: Actions = (
    ("list", "list contexts", "List contexts; * marks the current one.", _nothing),
    (
        "add",
        "add a context",
        "Add a context: address, TLS and credentials under a name. The file of contexts is readable by its owner only. "
        "Example: gantry context add prod --endpoint mq.example.com:8080 --tls --admin https://mq.example.com:8090",
        _add_context,
    ),
    ("use", "select the current context", "Select the context of commands without --profile.", _context_name),
    ("show", "show a context", "Show a context without its token.", _context_name),
    ("remove", "remove a context", "Remove a context.", _context_name),
)
# Name, summary, description, arguments or actions.
COMMANDS: tuple[tuple[str, str, str, Fill | Actions], ...] = (
    (
        "message",
        "list, show, locate and resend messages",
        "Inspect stored messages over the admin API.",
        MESSAGE_ACTIONS,
    ),
    (
        "trace",
        "show who sent and consumed a message",
        "Show the message trace: who sent a message, and every delivery. Example: gantry trace "
        "7F000001000018B4AAC2000000000001",
        _trace,
    ),
    ("dlq", "list, show, resend and purge dead letters", "Manage the dead letters of a consumer group.", DLQ_ACTIONS),
    (
        "clients",
        "list and show clients",
        "List the clients that are connected, of both protocols; show one. Without ACTION: list.",
        CLIENT_ACTIONS,
    ),
    (
        "connections",
        "list connections",
        "List open connections. Example: gantry connections --sort=-bytes_in",
        _connections,
    ),
    (
        "top",
        "show traffic, topics and lag live",
        "Show traffic, the busiest topics, and groups by lag, until Ctrl-C.",
        _top,
    ),
    (
        "drain",
        "move clients to other replicas",
        "Ask clients to reconnect to other replicas; the process continues. Asks for confirmation. "
        "Example: gantry drain --undo",
        _drain,
    ),
    ("config", "check and show settings without starting", "Check and show settings without starting.", CONFIG_ACTIONS),
    ("context", "add, select, list and remove contexts", "Manage contexts. Without ACTION: list.", CONTEXT_ACTIONS),
    (
        "completion",
        "print a completion script for a shell",
        "Print a completion script. Example: source <(gantry completion bash)",
        _shell,
    ),
)
# These do not use the admin API.
LOCAL = frozenset(("config", "context", "completion"))


def add_output(command: argparse.ArgumentParser, default: object = None) -> None:
    """Add the option of commands without a connection."""
    command.add_argument(
        "--json",
        action="store_true",
        default=False if default is None else default,
        help="print one JSON object per line",
    )
