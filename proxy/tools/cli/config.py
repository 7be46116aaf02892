"""`gantry config`: the settings that a server would have, without starting it."""

import argparse

import orjson

from proxy.tools.cli.client import UsageError
from proxy.tools.cli.output import Output


async def run(options: argparse.Namespace) -> int:
    """Run the action. Raises UsageError for settings that are not valid, and in `check` for unusable files."""
    # The models take 0.2 s to import.
    from proxy.auth.sources.source import AuthError
    from proxy.settings.loading import ConfigError, Sources, check_access, check_backend
    from proxy.settings.masking import flat, mask
    from proxy.workers.worker_settings import check_workers

    if options.action is None:
        raise UsageError("give an action: check or show")
    if options.file is not None and options.config is not None:
        raise UsageError("give FILE or --config, not both")
    file = options.file or options.config
    sources = Sources(file, {})
    try:
        settings = sources.load()
        check_backend(settings)
        check_access(settings)
        check_workers(settings)
    except (ConfigError, AuthError) as error:
        raise UsageError(str(error)) from None
    output = Output(options.json)
    if options.action == "check":
        # The import takes 60 ms.
        from proxy.tools.cli.named_files import problems

        texts = list(problems(settings))
        if texts:
            raise UsageError("\n".join(texts))
        output.done("settings", str(file or "of the environment"), "valid")
        return 0
    origins = sources.origins()
    rows = []
    for key, value in flat(settings, brief=not output.json):
        # One environment variable may hold a whole table, under the table's key.
        origin = origins.get(key) or origins.get(key.partition(".")[0])
        if origin is not None:
            rows.append((key, mask(key, value), origin))
    if output.json:
        for key, value, origin in rows:
            output.dump({"key": key, "value": value, "origin": origin})
    else:
        output.table(("SETTING", "VALUE", "ORIGIN"), [(key, _text(value), origin) for key, value, origin in rows])
    return 0


def _text(value: object) -> str:
    """Return a text as it is, and other values as TOML and JSON write them."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
