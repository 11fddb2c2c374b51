"""The figures of a run, as its metrics.jsonl has them."""

import json
from pathlib import Path
from typing import Any


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read the records of metrics.jsonl; none where there is no file, broken lines left out."""
    records = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("epoch"), (int, float)):
            records.append(record)
    return records
