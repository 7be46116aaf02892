"""Commands of packages above the proxy, found as entry points of the group `gantry.commands`."""

from collections.abc import Callable, Sequence

GROUP = "gantry.commands"
# Names and texts for `gantry --help`.
KNOWN = {"analytics": "analyse traffic records: reports, anomalies, roll-ups, alerts"}

Command = Callable[[Sequence[str]], int]


def find(name: str) -> Command | None:
    """Return the function of `gantry NAME …`, which takes the arguments after the name and returns the exit status;
    None for unknown names.
    """
    # Imported here: it costs every start some milliseconds.
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP, name=name):
        command: Command = entry.load()
        return command
    return None
