"""JSON files: what was written comes back, what is damaged gets one sentence with the remedy."""

import pytest

from karat.errors import UserError
from karat.files.json_files import read_json, write_json


def test_values_come_back(tmp_path):
    values = {"classes": ["é", "b"], "rate": 0.25, "none": None}
    write_json(tmp_path / "new" / "a.json", values)
    assert read_json(tmp_path / "new" / "a.json") == values


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff"])
def test_a_damaged_file_is_refused_with_the_remedy(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.json is damaged \(.*\): run it again\.$"):
        read_json(tmp_path / "a.json", "run it again")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"Cannot read .*a\.json"):
        read_json(tmp_path / "a.json")
