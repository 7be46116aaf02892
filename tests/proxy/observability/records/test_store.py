"""Stores in directories, object stores and fsspec's file systems."""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import dataset, parquet

from proxy.observability.records import arrow
from proxy.observability.records.errors import TrafficError
from proxy.observability.records.file import RecordFile
from proxy.observability.records.origin import Origin
from proxy.observability.records.schema import REQUESTS
from proxy.observability.records.store import Store, partition
from proxy.settings.traffic_records import redacted
from tests.proxy.observability.records import samples as kit
from tests.proxy.observability.records.samples import observation

PATH = f"{partition('requests', 500_000)}/r-0-1-0.parquet"


def batch(rows: int = 10) -> pa.RecordBatch:
    return kit.batch(*(observation() for _ in range(rows)), offset=1.8e9)


def write(store: Store, path: str = PATH, rows: int = 10) -> int:
    file = RecordFile(store, REQUESTS, path, 0.0)
    file.add(batch(rows))
    return file.finish()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Run an S3 server and yield the URL of a directory in it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"s3://key:secret@bucket/traffic?endpoint_override={host}:{port}&scheme=http&region=eu-west-1"
    finally:
        server.stop()


@pytest.fixture
def memory() -> Iterator[str]:
    yield "memory://traffic"
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize("kind", ["directory", "file", "memory", "s3"])
def test_a_file_is_written_read_and_removed(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    where = {"directory": str(tmp_path), "file": tmp_path.as_uri()}.get(kind) or request.getfixturevalue(kind)
    store = Store(where)
    if kind == "s3":
        where += "&allow_bucket_creation=true"
        Store(where)._fs.create_dir("bucket")
    size = write(store)
    (stored,) = store.files()
    assert (stored.path, stored.hour, stored.complete, stored.size) == (PATH, 500_000, True, size)
    with store._fs.open_input_file(f"{store._base}/{PATH}") as file:
        table = parquet.read_table(file)
    assert table.num_rows == 10
    assert table.schema.equals(arrow.schema(REQUESTS), check_metadata=True)
    store.remove(stored)
    assert list(store.files()) == []


@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_an_incomplete_file_is_hidden_from_readers(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    store = Store(str(tmp_path) if kind == "directory" else request.getfixturevalue(kind))
    with store.create(PATH) as stream:
        stream.write(b"half a file")
        stream.flush()
        (stored,) = store.files()
        assert not stored.complete
        assert stored.path.rpartition("/")[2].startswith("_")
    store.discard(PATH)
    assert list(store.files()) == []


def test_a_file_has_version_compression_dictionaries_and_utc_times(tmp_path: Path) -> None:
    write(Store(str(tmp_path)))
    file = parquet.ParquetFile(tmp_path / PATH)
    assert file.metadata.metadata[b"gantry.schema"] == b"1"
    of = {file.metadata.row_group(0).column(each).path_in_schema: each for each in range(file.metadata.num_columns)}
    for column in REQUESTS.columns:
        chunk = file.metadata.row_group(0).column(of[column.name])
        assert chunk.compression == "ZSTD"
        assert ("RLE_DICTIONARY" in chunk.encodings) == column.dictionary, column.name
    time = json.loads(file.schema.column(of["time"]).logical_type.to_json())
    assert (time["Type"], time["isAdjustedToUTC"], time["timeUnit"]) == ("Timestamp", True, "microseconds")


def test_files_of_older_versions_are_read_with_nulls(tmp_path: Path) -> None:
    write(Store(str(tmp_path)))
    old = batch().drop_columns(["weight", "key_hash"])
    older = tmp_path / f"{partition('requests', 499_999)}/r-0-1-0.parquet"
    older.parent.mkdir(parents=True)
    parquet.write_table(pa.Table.from_batches([old]), older)
    table = dataset.dataset(tmp_path / "requests", schema=arrow.schema(REQUESTS), format="parquet").to_table()
    assert table.num_rows == 20
    assert table.column("weight").null_count == 20
    assert table.column("topic").null_count == 0


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("nonsense://key:secret@there", "traffic.directory nonsense://there: Protocol not known"),
        ("s3://key:secret@bucket/x?no_such=option", "traffic.directory s3://bucket/x"),
    ],
)
def test_check_rejects_an_unusable_url_without_printing_secrets(where: str, text: str) -> None:
    with pytest.raises(TrafficError) as error:
        Store(where).check()
    assert text in str(error.value)
    assert "secret" not in str(error.value)


def test_check_names_the_extra_if_fsspec_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(TrafficError, match=r"pip install 'rocketmq-gantry\[fsspec\]'"):
        Store("sftp://host/path").check()


def test_redacted_removes_credentials_and_options() -> None:
    assert redacted("s3://key:secret@bucket/path?session_token=x") == "s3://bucket/path"
    assert redacted("/var/lib/a@b?c") == "/var/lib/a@b?c"


@pytest.mark.parametrize(
    ("replica", "name"), [("mq-1", "mq-1-2-7-3"), ("_a/b%c.d", "a-b-c-d-2-7-3"), ("", "replica-2-7-3")]
)
def test_file_names_have_no_special_characters(replica: str, name: str) -> None:
    assert Origin(replica, 2, 7).file_name(3) == f"{name}.parquet"


def test_damage_inside_a_file_is_noticed(tmp_path: Path) -> None:
    """Without a checksum of its page, a flipped bit would be read as another value."""
    generator = random.Random(7)
    file = RecordFile(Store(str(tmp_path)), REQUESTS, PATH, 0.0)
    sizes = [generator.randrange(2**30) for _ in range(2_000)]
    file.add(kit.batch(*(observation(bytes_in=size) for size in sizes), offset=1.8e9))
    file.finish()
    path = tmp_path / PATH
    whole = path.read_bytes()
    group = parquet.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    (sizes_column,) = (column for column in columns if column.path_in_schema == "bytes_in")
    # Behind the header of the page.
    last = sizes_column.data_page_offset + sizes_column.total_compressed_size
    for place in generator.sample(range(last - sizes_column.total_compressed_size // 2, last), 20):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << generator.randrange(8)]) + whole[place + 1 :])
        with pytest.raises(OSError, match="CRC"):
            parquet.ParquetFile(path, page_checksum_verification=True).read()
