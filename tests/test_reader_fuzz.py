"""Whatever bytes a file holds: its reader returns, or raises one sentence."""

import contextlib
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karat.data.decoding import Unreadable, picture, read_header
from karat.data.readers import read_matrix, read_npz
from karat.errors import UserError
from karat.files.checkpoints import load_checkpoint
from karat.files.json_files import read_json
from karat.files.metrics_log import read_metrics
from karat.files.safe_csv import read_safe_csv
from karat.files.tensors import read_tensors
from karat.files.text_tables import read_text_table
from karat.files.yaml_files import read_yaml

READERS = {
    "a.csv": read_text_table,
    "b.csv": read_safe_csv,
    "c.csv": read_matrix,
    "a.npz": read_npz,
    "a.yaml": read_yaml,
    "a.json": read_json,
    "a.jsonl": read_metrics,
    "a.pt": load_checkpoint,
    "a.safetensors": read_tensors,
}
STARTS = st.sampled_from(
    [b"", b"a,b,label\n", b"PK\x03\x04", b"\x93NUMPY", b"{", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\x1f\x8b", b"BM"]
)
CONTENT = st.builds(
    bytes.__add__, STARTS, st.one_of(st.binary(max_size=300), st.text(max_size=100).map(lambda text: text.encode()))
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=CONTENT)
def test_readers_say_one_sentence(place, name, content):
    path = place / name
    path.write_bytes(content)
    with warnings.catch_warnings(), contextlib.suppress(UserError):
        warnings.simplefilter("ignore")
        READERS[name](path)


@settings(max_examples=80, deadline=None)
@given(content=CONTENT)
def test_pictures_are_read_or_unreadable(content):
    for read in (read_header, picture):
        with warnings.catch_warnings(), contextlib.suppress(Unreadable):
            warnings.simplefilter("ignore")
            read(content)
