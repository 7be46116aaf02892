"""Record the contract of the official .proto files.

    python -m tests.protos.capture rocketmq CHECKOUT_OF_APACHE_ROCKETMQ_APIS
    python -m tests.protos.capture interop CHECKOUT_OF_GRPC_GRPC_PROTO

It compiles the files at the checkout's HEAD (which may be a bare repository), and writes their contract and commit to
golden/NAME.json. The .proto files and generated code of this repository are not used.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.protos.contract import Contract, contract_of

GOLDEN = Path(__file__).resolve().parent / "golden"
_SOURCES = {
    "rocketmq": (
        "apache/rocketmq-apis",
        tuple(f"apache/rocketmq/v2/{name}.proto" for name in ("admin", "definition", "service")),
    ),
    "interop": (
        "grpc/grpc-proto",
        tuple(f"grpc/testing/{name}.proto" for name in ("empty", "messages", "test")),
    ),
}


def capture(checkout: Path, names: tuple[str, ...]) -> dict[str, Contract]:
    """Return the contracts of the named files at a checkout's HEAD."""
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(_git(checkout, "archive", "HEAD", *names))) as archive:
            archive.extractall(directory, filter="data")
        target = Path(directory) / "descriptors"
        compiler = (sys.executable, "-m", "grpc_tools.protoc")
        subprocess.run([*compiler, f"-I{directory}", f"--descriptor_set_out={target}", *names], check=True)
        return {file.name: contract_of(file) for file in FileDescriptorSet.FromString(target.read_bytes()).file}


def _git(checkout: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", checkout, *arguments], check=True, stdout=subprocess.PIPE).stdout


def main() -> None:
    """Write one golden file."""
    parser = argparse.ArgumentParser(description="Record the contract of the official .proto files.")
    parser.add_argument("name", choices=_SOURCES)
    parser.add_argument("checkout", type=Path)
    arguments = parser.parse_args()
    repository, names = _SOURCES[arguments.name]
    commit = _git(arguments.checkout, "rev-parse", "HEAD").decode().strip()
    golden = {
        "origin": f"https://github.com/{repository}/tree/{commit}",
        "files": capture(arguments.checkout, names),
    }
    (GOLDEN / f"{arguments.name}.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
