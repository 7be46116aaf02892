"""Compilation of the hot path with mypyc: the build hook of the wheel, and the command of `make compile`.

    python hatch_build.py [--clean]

The command compiles the modules of `[tool.gantry.compiled]` in pyproject.toml in place, next to their sources; with
`--clean` it removes them. Python prefers a compiled module to its source, so changes of a source take effect after the
next compilation only.

A wheel has the compiled modules beside their sources, unless there is no C compiler or the compilation fails: then it
is pure Python, and the build warns. The environment variable GANTRY_PURE decides otherwise: with 1 the wheel is pure
Python, with 0 the build fails where it cannot compile. Editable installs are not compiled.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
_GROUP = "gantry"
# Without debugging information: it takes most of the time of the compiler.
_FLAGS = ("-g0", "-O2")


def sources(root: Path = ROOT) -> list[str]:
    """Return the paths of the modules to compile."""
    return list(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["gantry"]["compiled"]["modules"])


def compile_modules(work: Path, target: Path) -> list[Path]:
    """Compile the modules; return the paths of the extension modules below `target`, relative to it.

    work: directory for C sources and objects, which later compilations reuse. Raises an exception or SystemExit if
    mypy, setuptools or a C compiler is missing or fails.
    """
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    class ParallelBuild(build_ext):  # type: ignore[misc]  # setuptools has no types
        """Compiles the C sources of an extension in parallel, and reuses objects."""

        def build_extensions(self) -> None:
            compile_one = self.compiler.compile

            def compile_all(files: Sequence[str], **options: Any) -> list[str]:
                digest = _headers_digest(options["include_dirs"], work, options.get("extra_postargs") or ())
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    return list(pool.map(lambda file: _object(compile_one, file, digest, options), files))

            self.compiler.compile = compile_all
            super().build_extensions()

    work.mkdir(parents=True, exist_ok=True)
    extensions = mypycify(
        # Independent of the environment: other packages are untyped, and their stubs and plugins are not used.
        ["--config-file=", "--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent", *sources()],
        multi_file=True,
        target_dir=str(work / "c"),
        group_name=_GROUP,
    )
    for extension in extensions:
        extension.extra_compile_args = [*extension.extra_compile_args, *_FLAGS]
    command = ParallelBuild(Distribution({"name": _GROUP, "ext_modules": extensions}))
    command.build_lib, command.build_temp = str(target), str(work / "objects")
    command.ensure_finalized()
    command.run()
    return [Path(path).relative_to(target) for path in command.get_outputs()]


def _headers_digest(directories: Sequence[str], work: Path, flags: Sequence[str]) -> bytes:
    """Return a digest of the generated headers and the flags, which all objects depend on."""
    digest = hashlib.sha256(repr((sys.version, flags)).encode())
    for directory in directories:
        if Path(directory).is_relative_to(work):
            for header in sorted(Path(directory).rglob("*.h")):
                digest.update(header.read_bytes())
    return digest.digest()


def _object(compile_one: Any, file: str, digest: bytes, options: dict[str, Any]) -> str:
    """Compile one C file, unless its object is current; return the path of the object."""
    key = hashlib.sha256(digest + Path(file).read_bytes()).hexdigest()
    path = Path(options["output_dir"], file.lstrip("/")).with_suffix(".o")
    mark = path.with_suffix(".key")
    if not path.exists() or not mark.exists() or mark.read_text() != key:
        (made,) = compile_one([file], **options)
        path.parent.mkdir(parents=True, exist_ok=True)
        if Path(made) != path:
            shutil.copy(made, path)
        mark.write_text(key)
    return str(path)


def compiled(root: Path = ROOT) -> Iterator[Path]:
    """Yield the extension modules in place."""
    for package in ("", *{str(Path(path).parent) for path in sources(root)}):
        yield from (root / package).glob("*.cpython-*.so")


def clean(root: Path = ROOT) -> None:
    """Remove the extension modules in place."""
    for path in compiled(root):
        path.unlink()


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the build is editable or GANTRY_PURE is 1. Raises CalledProcessError if GANTRY_PURE is 0."""
        pure = os.environ.get("GANTRY_PURE", "")
        if version == "editable" or pure == "1":
            return
        work = Path(self.directory, "compiled")
        # A process of its own: mypy ends its process after an error.
        command = [sys.executable, __file__, "--to", str(work / "wheel"), "--work", str(work)]
        if subprocess.run(command, check=pure == "0").returncode:
            self.app.display_warning("The wheel is pure Python: the hot path could not be compiled (see above).")
            return
        build_data["pure_python"], build_data["infer_tag"] = False, True
        for path in (work / "wheel").rglob("*.so"):
            build_data["force_include"][str(path)] = str(path.relative_to(work / "wheel"))


def main(arguments: list[str]) -> None:
    """Run the command."""
    os.chdir(ROOT)
    if arguments == ["--clean"]:
        clean()
        return
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    if "--to" not in options:
        clean()
    work, target = Path(options.get("--work", ROOT / "build" / "compiled")), Path(options.get("--to", ROOT))
    compile_modules(work.resolve(), target.resolve())


if __name__ == "__main__":
    main(sys.argv[1:])
