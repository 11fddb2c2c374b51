"""The log of a run's metrics: one JSON object a line, readable while the run goes on."""

import json
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from karat.errors import UserError, unreadable
from karat.files.required import refuse_link


class MetricsLog:
    """Append records to a file of JSON lines; every line is on its way to the disk when `append` returns.

    A checkpoint keeps `position()`; a resumed run calls `truncate` with it, so that no step is logged twice.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "metrics.jsonl"
    >>> with MetricsLog(path) as log:
    ...     log.append({"step": 1, "loss": 0.5})
    ...     log.append({"step": 2, "loss": math.nan})
    >>> print(path.read_text(), end="")
    {"step": 1, "loss": 0.5}
    {"step": 2, "loss": null}
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        refuse_link(self._path)
        self._file = open(path, "ab")  # noqa: SIM115  held open until close

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line; NaN and infinities, which JSON does not have, become null."""
        line = json.dumps(_finite(record), ensure_ascii=False, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def position(self) -> int:
        """Return the length of the log in bytes, after making sure that so much of it survives a crash."""
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def checksum(self) -> int:
        """Return the CRC-32 of the log."""
        return zlib.crc32(self._path.read_bytes())

    def truncate(self, position: int) -> None:
        """Drop what was written after a position; a log that is shorter than that stays as it is."""
        self._file.truncate(min(position, self.position()))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: str | Path, damaged: Literal["refuse", "skip"] = "refuse") -> list[dict[str, Any]]:
    """Read the records of a log; a last line that is still being written is left out.

    "skip" reads what there is: no log is no records, and lines that are no record of an epoch are left out.
    """
    if damaged == "skip" and not Path(path).exists():
        return []
    try:
        lines = Path(path).read_bytes().split(b"\n")[:-1]  # what follows the last line end is incomplete
    except OSError as error:
        raise unreadable(path, error) from error
    records = [_record(line) for line in lines]
    if damaged == "skip":
        return [record for record in records if record and isinstance(record.get("epoch"), (int, float))]
    for number, record in enumerate(records, start=1):
        if record is None:
            raise UserError(f"Line {number} of {path} is not a JSON object; mend or delete that line.")
    return [record for record in records if record is not None]


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
