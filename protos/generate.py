"""Write the Python code of our .proto files, or say that the committed code is not what they give.

    python -m protos.generate [--check]

The generated code is committed, so that an installation needs no compiler. It differs from what protoc
writes in one respect: modules import each other by their place in this repository, while the descriptors
keep the file names of the contract (`apache/rocketmq/v2/service.proto`), which reflection shows to clients.

Messages are typed by protoc's own .pyi, services by mypy-protobuf: protoc has no types for them.
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
# What a run writes and owns; anything else beside the .proto files is left alone.
_GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")
_SERVICE = re.compile(r"^service ", re.MULTILINE)
# Console scripts lie beside the interpreter, which need not be on the PATH.
_SERVICE_TYPES = Path(sys.executable).parent / "protoc-gen-mypy_grpc"


class GenerationError(Exception):
    """The compiler refused a .proto file; it has said why on stderr."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A directory that holds .proto files under the paths by which they import each other.

    `place` is relative to the repository's root and names the Python package, too.
    """

    place: str

    @property
    def root(self) -> Path:
        return ROOT / self.place

    @property
    def package(self) -> str:
        return self.place.replace("/", ".")

    def sources(self) -> list[str]:
        """The .proto files, relative to the tree."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*.proto"))

    def committed(self) -> dict[str, str]:
        """The generated code in place: path relative to the tree to text."""
        return _read(self.root)

    def render(self) -> dict[str, str]:
        """The code as it should be: path relative to the tree to text. Raises GenerationError."""
        sources = self.sources()
        services = [name for name in sources if _SERVICE.search((self.root / name).read_text())]
        with tempfile.TemporaryDirectory() as target:
            _compile(self.root, sources, f"--python_out={target}", f"--pyi_out={target}")
            # Only where there is a service: for other files the plugins write modules without content.
            _compile(
                self.root,
                services,
                f"--plugin=protoc-gen-mypy_grpc={_SERVICE_TYPES}",
                f"--grpc_python_out={target}",
                f"--mypy_grpc_out=quiet:{target}",
            )
            written = _read(Path(target))
        packages = {Path(name).parent.as_posix().replace("/", ".") for name in sources}
        return {name: self._placed(text, packages) for name, text in written.items()}

    def _placed(self, text: str, packages: set[str]) -> str:
        names = "|".join(re.escape(package) for package in sorted(packages))
        text = re.sub(rf"^from ({names}) import ", rf"from {self.package}.\1 import ", text, flags=re.MULTILINE)
        # What the classes say as their module; pickle and documentation follow it.
        return re.sub(rf"(DESCRIPTOR, ')({names})\.", rf"\1{self.package}.\2.", text)


TREES = (Tree("protos"), Tree("tests/conformance/protos"))


def write(tree: Tree) -> None:
    """Bring a tree's generated code up to date, and drop what no .proto file gives any more."""
    rendered = tree.render()
    for name in tree.committed().keys() - rendered.keys():
        (tree.root / name).unlink()
    for name, text in rendered.items():
        (tree.root / name).write_text(text)


def drift(tree: Tree) -> list[str]:
    """One line for each generated file that is not what the .proto files give."""
    rendered, committed = tree.render(), tree.committed()
    return [
        f"{tree.place}/{name}: {_difference(committed.get(name), rendered.get(name))}"
        for name in sorted(rendered.keys() | committed.keys())
        if rendered.get(name) != committed.get(name)
    ]


def _compile(root: Path, sources: list[str], *options: str) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", *options, *sources]
    if sources and subprocess.run(command).returncode:
        raise GenerationError(f"protoc refused {', '.join(sources)}")


def _read(root: Path) -> dict[str, str]:
    paths = (path for path in root.rglob("*_pb2*") if _GENERATED.search(path.name))
    return {path.relative_to(root).as_posix(): path.read_text() for path in paths}


def _difference(committed: str | None, rendered: str | None) -> str:
    if committed is None:
        return "missing"
    if rendered is None:
        return "no .proto file gives it"
    lines = list(_changes(committed, rendered))
    return f"{lines.count('+')} lines to add, {lines.count('-')} to drop"


def _changes(before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    # The first two lines name the files.
    for number, line in enumerate(lines):
        if number > 1:
            yield line[:1]


def main() -> None:
    """Write the code in place; with --check, exit with 1 and the list of differences instead."""
    parser = argparse.ArgumentParser(description="Generate the Python code of the .proto files.")
    parser.add_argument("--check", action="store_true", help="only compare with the committed code")
    if not parser.parse_args().check:
        for tree in TREES:
            write(tree)
        return
    if differences := [line for tree in TREES for line in drift(tree)]:
        sys.exit("\n".join(["generated code is not current; run `make protos`:", *differences]))


if __name__ == "__main__":
    main()
