"""`python -m analytics.jobs.package DIR`: build the program and the archive of modules for spark-submit."""

import sys
import zipfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
# From the proxy only the records' schema, also as Arrow's, and the model of the traffic rules with the tables of
# requests; from remoting only request codes with their permissions, and topic prefixes.
_PARTS = (
    "analytics",
    *(
        f"proxy/{name}.py"
        for name in (
            "__init__",
            "observability/__init__",
            "observability/records/__init__",
            "observability/records/arrow",
            "observability/records/schema",
            "traffic_rules/__init__",
            "traffic_rules/match_criteria",
            "traffic_rules/model",
            "traffic_rules/parsing",
        )
    ),
    *(
        f"remoting/{name}.py"
        for name in (
            "__init__",
            "broker_requests",
            "codes",
            "names",
            "permissions",
            "request_kinds",
            "requests",
            "send_message",
        )
    ),
)
# Modules, and the files of the report's page.
_SUFFIXES = (".py", ".j2", ".js", ".css")
_TIME = (2026, 1, 1, 0, 0, 0)


def package(folder: Path) -> tuple[Path, Path]:
    """Write gantry-analytics.py and gantry-analytics.zip; the same source gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    program, archive = folder / "gantry-analytics.py", folder / "gantry-analytics.zip"
    program.write_bytes((_ROOT / "analytics/__main__.py").read_bytes())
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(_files()):
            out.writestr(zipfile.ZipInfo(path.relative_to(_ROOT).as_posix(), _TIME), path.read_bytes())
    return program, archive


def _files() -> set[Path]:
    found: set[Path] = set()
    for part in _PARTS:
        path = _ROOT / part
        found |= {path} if path.is_file() else {each for each in path.rglob("*") if each.suffix in _SUFFIXES}
    return found


if __name__ == "__main__":
    for made in package(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")):
        print(made)
