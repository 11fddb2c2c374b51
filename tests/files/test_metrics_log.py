"""The metrics log: valid JSON always, exact truncation, and reading while it is written."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.errors import UserError
from karat.files.metrics_log import MetricsLog, read_metrics

metrics = st.dictionaries(
    st.text(), st.integers() | st.floats() | st.text() | st.lists(st.floats(), max_size=3), max_size=4
)


@pytest.fixture(scope="module")
def shared_file(tmp_path_factory):
    return tmp_path_factory.mktemp("shared") / "metrics.jsonl"


def only_finite(value):
    if isinstance(value, list):
        return [only_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@settings(deadline=None)
@given(records=st.lists(metrics, max_size=5))
def test_records_come_back_with_null_for_what_is_not_finite(shared_file, records):
    shared_file.unlink(missing_ok=True)
    with MetricsLog(shared_file) as log:
        for record in records:
            log.append(record)
    expected = [{key: only_finite(value) for key, value in record.items()} for record in records]
    assert read_metrics(shared_file) == expected
    for line in shared_file.read_bytes().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # NaN or Infinity would arrive here


def test_nested_metrics(tmp_path):
    with MetricsLog(tmp_path / "log") as log:
        log.append({"losses": {"kl": math.inf, "mix": (1.0, math.nan)}})
    assert read_metrics(tmp_path / "log") == [{"losses": {"kl": None, "mix": [1.0, None]}}]


def test_a_resumed_log_equals_an_uninterrupted_one(tmp_path):
    """Log 5 steps, note the position after 3, resume there and log 3 to 7: the file has 0 to 7 once."""
    path = tmp_path / "runs" / "log"
    with MetricsLog(path) as log:
        for step in range(5):
            log.append({"step": step, "name": "é"})
            if step == 2:
                position = log.position()
    with open(path, "ab") as file:
        file.write(b'{"step": 5, "na')  # killed in the middle of a line
    with MetricsLog(path) as log:
        log.truncate(position)
        assert log.position() == position
        for step in range(3, 8):
            log.append({"step": step, "name": "é"})
    assert [record["step"] for record in read_metrics(path)] == list(range(8))


def test_the_position_is_the_length_of_the_file(tmp_path):
    path = tmp_path / "log"
    with MetricsLog(path) as log:
        assert log.position() == 0
        log.append({"a": 1})
        assert log.position() == len('{"a": 1}\n') == path.stat().st_size
    with MetricsLog(path) as log:
        assert log.position() == path.stat().st_size


def test_truncating_never_lengthens(tmp_path):
    with MetricsLog(tmp_path / "log") as log:
        log.append({"a": 1})
        log.truncate(1000)
        log.append({"a": 2})
    assert read_metrics(tmp_path / "log") == [{"a": 1}, {"a": 2}]


def test_a_line_can_be_read_at_once_and_half_a_line_is_left_out(tmp_path):
    path = tmp_path / "log"
    with MetricsLog(path) as log:
        log.append({"step": 1})
        assert read_metrics(path) == [{"step": 1}]
        with open(path, "ab") as file:
            file.write(b'{"step": 2')
        assert read_metrics(path) == [{"step": 1}]


@pytest.mark.parametrize("line", [b"{", b"[1]", b"", b"\xff"])
def test_a_damaged_line_is_named(tmp_path, line):
    (tmp_path / "log").write_bytes(b'{"a": 1}\n' + line + b'\n{"a": 2}\n')
    with pytest.raises(UserError, match=r"Line 2 of .*log"):
        read_metrics(tmp_path / "log")


def test_a_missing_log_is_named(tmp_path):
    with pytest.raises(UserError, match=r"Cannot read .*missing"):
        read_metrics(tmp_path / "missing")


def test_whatever_there_is_can_be_read_of_a_damaged_log(tmp_path):
    path = tmp_path / "log"
    assert read_metrics(path, damaged="skip") == []
    path.write_bytes(b'{"epoch": 1}\n{\n[1]\n\xff\n{"step": 3}\n{"epoch": 2, "loss": 0.5}\n{"epoch": 3')
    assert read_metrics(path, damaged="skip") == [{"epoch": 1}, {"epoch": 2, "loss": 0.5}]
