"""`gantry completion`: scripts that complete commands, actions and options, generated from the parsers."""

import argparse
import shlex
import sys
from collections.abc import Iterator
from typing import Any

_BASH = """\
_gantry() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" path="" item
    for item in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$path $item" in
{paths}
        esac
    done
    case "$path" in
{words}
    esac
}}
complete -o default -F _gantry gantry
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


async def run(options: argparse.Namespace) -> int:
    """Print the script."""
    found = dict(_subcommands(options.commands, ""))
    found[""] = [*_names(options.commands), ("--version", "print the version"), ("--help", "print the commands")]
    sys.stdout.write(_fish(found) if options.shell == "fish" else _bash(found, zsh=options.shell == "zsh"))
    return 0


# The words that may follow a path of commands, with their help.
_Words = list[tuple[str, str]]


def _subcommands(commands: "argparse._SubParsersAction[Any]", path: str) -> Iterator[tuple[str, _Words]]:
    """Yield path and words of all commands below. path: such as ` topics create`."""
    for name, command in commands.choices.items():
        yield from _command(command, f"{path} {name}")


def _names(commands: "argparse._SubParsersAction[Any]") -> _Words:
    helps = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    return [(name, helps.get(name, "")) for name in commands.choices]


def _command(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, _Words]]:
    words: _Words = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            words += _names(action)
            yield from _subcommands(action, path)
        elif action.option_strings:
            # All names but short ones with a long form: an option that is on or off has `--x` and `--no-x`.
            long = [name for name in action.option_strings if name.startswith("--")]
            words += [(name, action.help or "") for name in long or action.option_strings]
        elif action.choices is not None:
            words += [(str(choice), "") for choice in action.choices]
    yield path, words


def _bash(found: dict[str, _Words], *, zsh: bool) -> str:
    paths = "|".join(shlex.quote(path) for path in found if path)
    words = "\n".join(
        f"        {shlex.quote(path)}) COMPREPLY=($(compgen -W {shlex.quote(' '.join(word for word, _ in words))}"
        ' -- "$word"));;'
        for path, words in found.items()
    )
    script = _BASH.format(paths=f'            {paths}) path="$path $item";;', words=words)
    return _ZSH + script if zsh else script


def _fish(found: dict[str, _Words]) -> str:
    lines = ["complete -c gantry -f"]
    for path, words in found.items():
        names = path.split()
        following = {word for word, _ in words if not word.startswith("-")}
        condition = " && ".join(f"__fish_seen_subcommand_from {name}" for name in names) or "__fish_use_subcommand"
        for word, text in words:
            unseen = f" && not __fish_seen_subcommand_from {' '.join(sorted(following))}" if word in following else ""
            flag = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            test = shlex.quote(condition + (unseen if names else ""))
            description = shlex.quote(text.partition(";")[0].replace("%", "")[:60])
            lines.append(f"complete -c gantry -n {test} {flag} -d {description}")
    return "\n".join(lines) + "\n"
