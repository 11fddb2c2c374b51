"""Features that took long to compute, kept on disk by what they were computed from, and mapped into memory.

A store is a folder with two files. `features.f32` has rows of float32, one after the other. `index.jsonl` has a line
for each block of rows that was added: where it begins, a checksum of it, and a key for each row, such as a hash of an
image. A line is written after its block: what was being written when a process was killed is in no line, and a block
that is not as its checksum says is no longer there. Either is computed again, and nothing else is.
"""

import hashlib
import json
import logging
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from karat.data.images import Rows
from karat.data.readers import Array
from karat.files.required import refuse_link

KEY = 16  # bytes

logger = logging.getLogger("karat")


class StoredRows:
    """Some rows of a store, as inputs: they are read from the file when they are asked for."""

    def __init__(self, features: Array, places: Tensor) -> None:
        self._features, self._places = features, places

    @property
    def shape(self) -> torch.Size:
        """Return the shape of the tensor that all rows would give."""
        return torch.Size((len(self._places), self._features.shape[1]))

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, rows: Rows) -> Tensor:
        return torch.from_numpy(self._features[self._places[rows].numpy()])  # a copy

    def subset(self, rows: Rows) -> "StoredRows":
        """Return a view of these rows; nothing is read."""
        return StoredRows(self._features, self._places[rows])

    def digests(self) -> list[bytes]:
        """Return a hash of each row."""
        return [hashlib.blake2b(self._features[place].tobytes(), digest_size=KEY).digest() for place in self._places]


class FeatureStore:
    """Features of one network; one process at a time adds to it, and others wait.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with FeatureStore(folder, width=2) as store:
    ...     store.add([b"a" * KEY], np.array([[1.0, 2.0]], dtype=np.float32))
    >>> with FeatureStore(folder, width=2) as store:
    ...     store.missing([b"a" * KEY, b"b" * KEY]), store.rows([b"a" * KEY])[[0]]
    ([1], tensor([[1., 2.]]))
    """

    def __init__(self, folder: Path, width: int) -> None:
        self.folder, self.width = folder, width
        self._data, self._index = folder / "features.f32", folder / "index.jsonl"
        self.damaged = 0  # rows that are not as they were written
        self._places: dict[bytes, int] = {}
        self._count = 0  # rows in the file, damaged ones included

    def __enter__(self) -> "FeatureStore":
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = self.folder / ".lock"
        refuse_link(lock)
        self._lock = FileLock(lock)
        self._lock.acquire()
        try:
            for path in (self._data, self._index):
                refuse_link(path)
                path.touch()
            self._read()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def missing(self, keys: Sequence[bytes]) -> list[int]:
        """Return the places of the keys, each key once, whose features are not here."""
        first = {key: place for place, key in reversed(list(enumerate(keys)))}
        return sorted(place for key, place in first.items() if key not in self._places)

    def add(self, keys: Sequence[bytes], features: Array) -> None:
        """Append a block; it counts as soon as its line is in the index."""
        block = np.ascontiguousarray(features, dtype=np.float32)
        content = block.tobytes()
        with self._data.open("r+b") as file:
            file.seek(self._count * self._row_bytes)
            file.write(content)
            file.truncate()
        line = {"start": self._count, "checksum": zlib.crc32(content), "keys": b"".join(keys).hex()}
        with self._index.open("a", encoding="ascii") as file:
            file.write(json.dumps(line) + "\n")
        self._places.update((key, self._count + row) for row, key in enumerate(keys))
        self._count += len(block)

    def rows(self, keys: Sequence[bytes]) -> StoredRows:
        """Return the features of these keys, all of which are here."""
        places = torch.tensor([self._places[key] for key in keys], dtype=torch.int64)
        return StoredRows(self._mapped(), places)

    @property
    def _row_bytes(self) -> int:
        return 4 * self.width

    def _mapped(self) -> Array:
        rows = self._data.stat().st_size // self._row_bytes
        if not rows:
            return np.empty((0, self.width), dtype=np.float32)
        return np.memmap(self._data, dtype=np.float32, mode="r", shape=(rows, self.width))

    def _read(self) -> None:
        """Read the index, and leave out what is not as it was written."""
        features = self._mapped()
        lines = self._index.read_bytes().split(b"\n")
        if lines[-1]:  # half a line: the next one must not be written behind it
            with self._index.open("ab") as file:
                file.write(b"\n")
        damaged: set[bytes] = set()
        for line in filter(None, lines):
            try:
                values = json.loads(line)
                start, checksum, names = int(values["start"]), int(values["checksum"]), bytes.fromhex(values["keys"])
                keys = [names[place : place + KEY] for place in range(0, len(names), KEY)]
            except (ValueError, KeyError, TypeError):
                continue  # half written: its block is written over, or stays as a gap
            end = start + len(keys)
            self._count = max(self._count, min(end, len(features)))
            if start < 0 or end > len(features) or zlib.crc32(features[start:end].tobytes()) != checksum:
                damaged.update(keys)
                continue
            self._places.update((key, start + row) for row, key in enumerate(keys))
        self.damaged = len(damaged - self._places.keys())  # those that were computed again stay in their old line
        if self.damaged:
            logger.warning("%d features in %s are damaged, and are computed again.", self.damaged, self._data)


class MemoryStore(FeatureStore):
    """Features that are kept for this run alone."""

    def __init__(self, width: int) -> None:
        super().__init__(Path(), width)
        self._blocks: list[Array] = []

    def __enter__(self) -> "MemoryStore":
        return self

    def __exit__(self, *error: object) -> None:
        return

    def add(self, keys: Sequence[bytes], features: Array) -> None:
        """Append a block."""
        self._blocks.append(np.asarray(features, dtype=np.float32))
        self._places.update((key, self._count + row) for row, key in enumerate(keys))
        self._count += len(features)

    def _mapped(self) -> Array:
        return np.concatenate([np.empty((0, self.width), dtype=np.float32), *self._blocks])
