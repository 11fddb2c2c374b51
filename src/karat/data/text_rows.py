"""Texts as sparse rows: the weights of their terms, and the few directions in which these differ most."""

import hashlib
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import normalize
from torch import Tensor

from karat.data.images import Rows
from karat.data.readers import Array

_CHUNK = 5_000  # texts whose directions are computed at once


@dataclass(frozen=True, eq=False)
class TextRows:
    """The weights of all terms, a sparse row for each text; rows that are taken are vectors of their directions.

    `wide`: they are the weights themselves, as a sparse tensor, which `nn.Linear` takes. `directions` is None where
    nobody asks for vectors.

    >>> from scipy import sparse
    >>> rows = TextRows(sparse.csr_matrix(np.eye(3, dtype=np.float32)), np.eye(3, 2, dtype=np.float32))
    >>> rows.shape, rows[[1]], rows.widened()[[1]].to_dense()
    (torch.Size([3, 2]), tensor([[0.0000, 1.4142]]), tensor([[0., 1., 0.]]))
    """

    counts: Any
    directions: Array | None
    wide: bool = False

    @property
    def shape(self) -> torch.Size:
        """Return the number of texts and of what each becomes."""
        return torch.Size((len(self), self.counts.shape[1] if self._columns is None else self._columns.shape[1]))

    def __len__(self) -> int:
        return int(self.counts.shape[0])

    def __getitem__(self, rows: Rows) -> Tensor:
        return self.terms(rows) if self.wide else self.vectors(rows)

    def vectors(self, rows: Rows) -> Tensor:
        """Return vectors of length √directions, and zeros for a text without a known term."""
        assert self.directions is not None
        places, width = torch.arange(len(self))[rows].numpy(), self.directions.shape[1]
        found = np.empty((len(places), width), dtype=np.float32)
        for start in range(0, len(places), _CHUNK):
            part = slice(start, start + _CHUNK)
            found[part] = normalize(self.counts[places[part]] @ self.directions)
        return torch.from_numpy(found).mul_(width**0.5)

    def terms(self, rows: Rows) -> Tensor:
        """Return the weights of all terms, as a sparse tensor."""
        found = self._chosen(rows)
        starts, columns, values = (torch.from_numpy(part) for part in (found.indptr, found.indices, found.data))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls sparse tensors new
            return torch.sparse_csr_tensor(starts, columns, values, found.shape, check_invariants=False)

    def subset(self, rows: Rows) -> "TextRows":
        """Return these texts."""
        return replace(self, counts=self._chosen(rows))

    def widened(self) -> "TextRows":
        """Return the same texts, of which all terms are taken."""
        return replace(self, wide=True)

    def fingerprint(self) -> bytes:
        """Return a hash of all that is learned from."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.counts.indptr, self.counts.indices, self.counts.data, self.directions):
            digest.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
        return digest.digest()

    def _chosen(self, rows: Rows) -> Any:
        return self.counts[torch.arange(len(self))[rows].numpy()]

    @property
    def _columns(self) -> Array | None:
        """Return the directions of what is taken; None: all terms are."""
        return None if self.wide else self.directions
