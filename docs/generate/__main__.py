"""`python -m docs.generate`: write the generated pages; with `--check`, fail when one of them is stale."""

import argparse
import sys

from docs.generate.pages import COMMAND, stale, write


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Generate the reference pages from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is stale")
    options = parser.parse_args(arguments)
    if options.check:
        names = stale()
        for name in names:
            print(f"{name} is stale: run {COMMAND}", file=sys.stderr)
        return 1 if names else 0
    names = write()
    print(f"generated: {', '.join(names) or 'nothing'} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
