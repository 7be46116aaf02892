"""The command line reference: every command with its arguments, from the argparse parsers."""

import argparse
from collections.abc import Iterator

from analytics.command import command_parser as analytics_parser
from docs.generate import markdown
from docs.generate.markdown import code, sentence, table
from proxy.__main__ import command_parser

_INTRODUCTION = """
The commands of `gantry`. [The command line](../operating/cli.md) shows them at work.
`gantry COMMAND --help` prints the same on a
terminal. Each command also takes `-h`, `--help`.
"""


def page() -> str:
    """Return the page."""
    sections = [*_commands("gantry", command_parser()), *_commands("gantry analytics", analytics_parser())]
    return markdown.page("Command line reference", _INTRODUCTION, *sections)


def subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield name and parser of each subcommand."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _commands(prefix: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    subparsers = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {choice.dest: choice.help or "" for action in subparsers for choice in action._choices_actions}
    for name, command in subcommands(parser):
        # Without help: a command of another package, or with a parser of its own.
        if command.add_help:
            text = command.description or helps.get(name, "")
            yield f"## `{prefix} {name}`\n\n{sentence(text)}\n\n{_arguments(command)}"
            yield from _commands(f"{prefix} {name}", command)


def _arguments(command: argparse.ArgumentParser) -> str:
    rows = [
        (_name(action), _help(action))
        for action in command._actions
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        and action.help != argparse.SUPPRESS
    ]
    return table(("argument", "description"), rows)


def _help(action: argparse.Action) -> str:
    text = (action.help or "") % {"default": action.default}
    required = " Required." if action.required and action.option_strings else ""
    return sentence(text) + required


def _name(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return code(metavar if action.nargs is None else f"[{metavar}]" if action.nargs == "?" else metavar)
    value = ""
    if action.choices is not None:
        value = " " + "{" + ",".join(map(str, action.choices)) + "}"
    elif action.nargs != 0:
        value = f" {metavar}"
    return ", ".join(code(f"{option}{value}") for option in action.option_strings)
