"""Commands of packages above the proxy, which it does not import: entry points of the group `gantry.commands`."""

from collections.abc import Callable, Sequence

GROUP = "gantry.commands"
# For `gantry --help`.
KNOWN = {"analytics": "questions about traffic records: a report, what stands out, roll-ups, alerts"}

Command = Callable[[Sequence[str]], int]


def find(name: str) -> Command | None:
    """What runs `gantry NAME …`: takes the arguments after the name, returns the exit status. None if there is none."""
    # Costs every start some milliseconds.
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP, name=name):
        command: Command = entry.load()
        return command
    return None
