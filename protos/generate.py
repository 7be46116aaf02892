"""Generate the Python code of the .proto files, or check that the committed code is up to date.

    python -m protos.generate [--check]

The generated code is committed, so that an installation needs no compiler. It differs from protoc's output in one
respect: modules import each other by their location in this repository, while the descriptors keep the file names of
the contract (`apache/rocketmq/v2/service.proto`), which reflection shows to clients.

Messages are typed by protoc's own .pyi, services by mypy-protobuf, as protoc generates no types for them.
"""

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Generated files; other files next to the .proto files are not touched.
_GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")
_SERVICE = re.compile(r"^service ", re.MULTILINE)
# Console scripts are installed next to the interpreter, whose directory may not be on the PATH.
_SERVICE_TYPES = Path(sys.executable).parent / "protoc-gen-mypy_grpc"


class GenerationError(Exception):
    """The compiler rejected a .proto file; its message is on stderr."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A directory with .proto files at the paths by which they import each other.

    location: path relative to the repository's root, which is also the name of the Python package.
    """

    location: str

    @property
    def root(self) -> Path:
        return ROOT / self.location

    @property
    def package(self) -> str:
        return self.location.replace("/", ".")

    def sources(self) -> list[str]:
        """Return the .proto files, relative to the tree."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*.proto"))

    def committed(self) -> dict[str, str]:
        """Return the text of the committed code, by path relative to the tree."""
        return _read(self.root)

    def render(self) -> dict[str, str]:
        """Return the text of newly generated code, by path relative to the tree. Raises GenerationError."""
        sources = self.sources()
        services = [name for name in sources if _SERVICE.search((self.root / name).read_text())]
        with tempfile.TemporaryDirectory() as target:
            _compile(self.root, sources, f"--python_out={target}", f"--pyi_out={target}")
            # Only for files with services: for others the plugins generate empty modules.
            _compile(
                self.root,
                services,
                f"--plugin=protoc-gen-mypy_grpc={_SERVICE_TYPES}",
                f"--grpc_python_out={target}",
                f"--mypy_grpc_out=quiet:{target}",
            )
            written = _read(Path(target))
        packages = {Path(name).parent.as_posix().replace("/", ".") for name in sources}
        return {name: self._relocate(text, packages) for name, text in written.items()}

    def _relocate(self, text: str, packages: set[str]) -> str:
        names = "|".join(re.escape(package) for package in sorted(packages))
        text = re.sub(rf"^from ({names}) import ", rf"from {self.package}.\1 import ", text, flags=re.MULTILINE)
        # The classes' `__module__`, which pickle and documentation tools use.
        return re.sub(rf"(DESCRIPTOR, ')({names})\.", rf"\1{self.package}.\2.", text)


TREES = (Tree("protos"), Tree("tests/conformance/protos"))


def write(tree: Tree) -> None:
    """Write a tree's generated code, and delete files without a source."""
    rendered = tree.render()
    for name in tree.committed().keys() - rendered.keys():
        (tree.root / name).unlink()
    for name, text in rendered.items():
        (tree.root / name).write_text(text)


def drift(tree: Tree) -> list[str]:
    """Return one line for each generated file that differs from newly generated code."""
    rendered, committed = tree.render(), tree.committed()
    return [
        f"{tree.location}/{name}: {_difference(committed.get(name), rendered.get(name))}"
        for name in sorted(rendered.keys() | committed.keys())
        if rendered.get(name) != committed.get(name)
    ]


def _compile(root: Path, sources: list[str], *options: str) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", *options, *sources]
    if sources and subprocess.run(command).returncode:  # noqa: S603  # fixed commands
        raise GenerationError(f"protoc rejected {', '.join(sources)}")


def _read(root: Path) -> dict[str, str]:
    paths = (path for path in root.rglob("*_pb2*") if _GENERATED.search(path.name))
    return {path.relative_to(root).as_posix(): path.read_text() for path in paths}


def _difference(committed: str | None, rendered: str | None) -> str:
    if committed is None:
        return "missing"
    if rendered is None:
        return "no .proto file generates it"
    lines = list(_changes(committed, rendered))
    return f"{lines.count('+')} lines to add, {lines.count('-')} to delete"


def _changes(before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    # The first two lines name the files.
    for number, line in enumerate(lines):
        if number > 1:
            yield line[:1]


def main() -> None:
    """Write the generated code, or with --check, exit with 1 and the list of differences."""
    parser = argparse.ArgumentParser(description="Generate the Python code of the .proto files.")
    parser.add_argument("--check", action="store_true", help="compare with the committed code instead of writing it")
    if not parser.parse_args().check:
        for tree in TREES:
            write(tree)
        return
    if differences := [line for tree in TREES for line in drift(tree)]:
        sys.exit("\n".join(["generated code is not up to date; run `make protos`:", *differences]))


if __name__ == "__main__":
    main()
