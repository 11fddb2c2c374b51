"""Texts become vectors: TF-IDF of words and characters, without a download; or a sentence encoder by its name.

TF-IDF weighs the words of a text, pairs of them, and runs of two to four characters inside words, each by how rare it
is. The strongest directions of these terms (latent semantic analysis) are what judges and networks see, all of one
length; a classifier that is fitted sees all terms. Nothing in either knows a label.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from karat.data.images import Inputs
from karat.data.readers import Array
from karat.data.sentence_encoder import load_sentence_encoder
from karat.data.text_rows import TextRows
from karat.errors import UserError
from karat.files.required import fitting
from karat.files.tensors import packed, read_tensors, unpacked, write_tensors

TFIDF = "tfidf"
TERMS = "terms"
FILE = "text.safetensors"  # in a run folder
LONGEST = 1_000_000  # characters of a text; a longer one is a file that went into a cell
# Debian's one-line descriptions, 20 sections, 10,000 rows, ridge classifier on 2,000 others: 70.3% with 256 directions,
# 72.2 with 512, 74.6 with 768 in 6.5 s, 75.1 with 1,024 in 10 s, 77.7 with all terms; a run keeps two bytes for each.
DIRECTIONS = 768
_SAMPLE = 20_000  # texts from which the directions are found
_CHUNK = 5_000  # texts that are counted at once
# The settings of scikit-learn's counters by what they count.
_COUNTERS: Mapping[str, dict[str, Any]] = {
    "words": {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"},
    "characters": {"analyzer": "char_wb", "ngram_range": (2, 4)},
}
_TERMS = 20_000  # of either kind, the most frequent ones


class TextEncoder(Protocol):
    """What makes vectors of texts."""

    @property
    def width(self) -> int:
        """Return how many numbers a text becomes."""

    def encode(self, texts: Sequence[str]) -> Inputs:
        """Return a vector for each text."""

    def describe(self) -> dict[str, Any]:
        """Return what schema.json says about it."""

    def save(self, folder: Path) -> None:
        """Write what the description leaves out beside schema.json."""


@dataclass(frozen=True, eq=False)
class TfidfEncoder:
    """Terms (words, runs of characters), how rare each is, and the directions [term, direction] that are kept.

    Without directions a text becomes the weights of all its terms.

    >>> encoder = fit_tfidf(["red apple", "green apple", "red car", "green car"])
    >>> apples, cars, tree = encoder.encode(["an apple", "a car", "apple tree"])[:]
    >>> bool(apples @ tree > cars @ tree)
    True
    """

    terms: Mapping[str, tuple[str, ...]]
    rarity: Mapping[str, Array]
    directions: Array | None

    @property
    def width(self) -> int:
        """Return how many numbers a text becomes."""
        return sum(map(len, self.terms.values())) if self.directions is None else self.directions.shape[1]

    def encode(self, texts: Sequence[str]) -> TextRows:
        """Return a vector of length √width for each text, or the weights of its terms; zeros without a known term."""
        return TextRows(self.count(texts), self.directions, wide=self.directions is None)

    def count(self, texts: Sequence[str]) -> Any:
        """Return the weights of all terms, a sparse row for each text."""
        counters = [_counter(name, self.terms[name], self.rarity[name]) for name in self.terms]
        parts = [_counted(counters, texts[start : start + _CHUNK]) for start in range(0, max(1, len(texts)), _CHUNK)]
        return sparse.vstack(parts, format="csr")

    def describe(self) -> dict[str, str]:
        """Return what schema.json says."""
        return {"kind": TERMS if self.directions is None else TFIDF, "file": FILE}

    def save(self, folder: Path) -> None:
        """Write terms, rarity and directions beside schema.json."""
        tensors = {} if self.directions is None else {"directions": torch.from_numpy(self.directions).half()}
        for name, terms in self.terms.items():
            tensors |= {f"{name}.{part}": tensor for part, tensor in packed(terms).items()}
            tensors[f"{name}.rarity"] = torch.from_numpy(self.rarity[name]).float()
        write_tensors(folder / FILE, tensors, {"format": "karat text 1"})


def fit_tfidf(texts: Sequence[str]) -> TfidfEncoder:
    """Learn terms, how rare they are, and the strongest directions, from these texts."""
    counters, terms, rarity = [], {}, {}
    seed = np.random.RandomState(0)  # the same texts always get the same vectors
    for name, options in _COUNTERS.items():
        fewest = 2 if len(texts) >= 1_000 else 1  # a term of one text tells nothing about another
        counter = TfidfVectorizer(**options, **_SHARED, min_df=fewest, max_features=_TERMS)
        try:
            counter.fit(texts)
        except ValueError:  # scikit-learn: no terms remain
            continue
        terms[name], rarity[name] = tuple(counter.get_feature_names_out().tolist()), counter.idf_.astype(np.float32)
        counters.append(_counter(name, terms[name], rarity[name]))
    if not terms or not any(one.isalnum() for text in texts for one in text):
        raise UserError("The train rows have no text with a letter or digit in it: check the column with the texts.")
    some = texts if len(texts) <= _SAMPLE else [texts[row] for row in np.sort(seed.permutation(len(texts))[:_SAMPLE])]
    counted = _counted(counters, some)
    width = min(DIRECTIONS, counted.shape[1], len(some))
    directions = strongest_directions(counted, width, seed) if width < counted.shape[1] else np.eye(width)
    # As they are kept: a run predicts by the very numbers that it was trained on.
    return TfidfEncoder(terms, rarity, directions.astype(np.float16).astype(np.float32))


def strongest_directions(rows: Any, count: int, seed: np.random.RandomState, rounds: int = 1) -> Array:
    """Return the directions [column, direction] in which sparse rows are longest, by subspace iteration.

    It is what scikit-learn's TruncatedSVD computes, orthogonalised by products of small matrices: with 1,000 directions
    that is several times as fast on one core.
    """
    block = seed.standard_normal((rows.shape[1], min(count + 16, *rows.shape))).astype(np.float32)
    for _ in range(rounds):
        block = rows.T @ _orthogonal(rows @ _orthogonal(block))
    values, axes = np.linalg.eigh(block.T @ block)
    strongest = np.argsort(-values)[:count]
    return block @ axes[:, strongest] / np.sqrt(np.maximum(values[strongest], 1e-12)).astype(np.float32)


def _orthogonal(block: Array) -> Array:
    """Return columns of length 1 at right angles to each other that span the same space."""
    values, axes = np.linalg.eigh((block.T @ block).astype(np.float64))
    scale = np.where(values > values[-1] * 1e-7, 1 / np.sqrt(np.maximum(values, 1e-30)), 0.0)
    return block @ (axes * scale).astype(np.float32)


def fit_encoder(name: str, texts: Sequence[str], download: bool = False) -> TextEncoder:
    """Return the encoder of a name: "tfidf", which learns from these texts, or a model for sentence-transformers."""
    return fit_tfidf(texts) if name == TFIDF else load_sentence_encoder(name, download)


def load_text_encoder(description: Mapping[str, Any], folder: Path) -> TextEncoder:
    """Return the encoder that schema.json describes, from the folder of its run or, by its name, from this machine."""
    if description["kind"] not in (TFIDF, TERMS):
        return load_sentence_encoder(description["name"], digest=description["digest"])
    return _load_tfidf(folder, reduced=description["kind"] == TFIDF)


def are_texts(inputs: Any) -> bool:
    """Return whether these are texts in a list, a tuple, a column or an array of one axis.

    >>> are_texts(["a", "b"]), are_texts([1.0]), are_texts("abc"), are_texts(np.array(["a"])), are_texts([])
    (True, False, False, True, False)
    """
    if not isinstance(inputs, (list, tuple, pd.Series, np.ndarray)) or not len(inputs) or np.ndim(inputs[:1]) != 1:
        return False
    return all(isinstance(text, str) for text in inputs)


def texts_of(data: Any, column: str) -> list[str]:
    """Return the texts of new rows: a list of them, or the column of a table."""
    if isinstance(data, pd.DataFrame):
        if column not in data.columns:
            raise UserError(f"The table has no column '{column}', and the model takes texts from it: add it.")
        data = data[column]
    if not are_texts(data):
        raise UserError("The model takes texts: give a list of texts, or a table with a column of them.")
    return [str(text) for text in data]


def _load_tfidf(folder: Path, reduced: bool) -> TfidfEncoder:
    tensors, metadata = read_tensors(folder / FILE)
    if metadata.get("format") != "karat text 1":
        raise UserError(f"{folder / FILE} is not a text encoder of this version of Karat: train again.")
    with fitting(folder / FILE):
        names = [name for name in _COUNTERS if f"{name}.rarity" in tensors]
        terms = {name: unpacked({part: tensors[f"{name}.{part}"] for part in ("bytes", "ends")}) for name in names}
        rarity = {name: tensors[f"{name}.rarity"].numpy() for name in names}
        directions = tensors["directions"].float().numpy() if reduced else None
    fit = bool(names) and all(np.isfinite(part).all() for part in rarity.values())
    if directions is not None:
        fit = fit and directions.ndim == 2 and sum(map(len, terms.values())) == len(directions)
        fit = fit and bool(np.isfinite(directions).all())
    for name in names:
        fit = fit and rarity[name].shape == (len(terms[name]),) and len(set(terms[name])) == len(terms[name])
    if not fit:
        raise UserError(f"{folder / FILE} is damaged (its parts do not fit together): train again.")
    return TfidfEncoder(terms, rarity, directions)


_SHARED: Mapping[str, Any] = {"sublinear_tf": True, "dtype": np.float32, "strip_accents": None}


def _counter(name: str, terms: tuple[str, ...], rarity: Array) -> TfidfVectorizer:
    """Return a counter of these terms."""
    counter = TfidfVectorizer(
        **_COUNTERS[name], **_SHARED, vocabulary={term: place for place, term in enumerate(terms)}
    )
    counter.idf_ = rarity
    return counter


def _counted(counters: Sequence[TfidfVectorizer], texts: Sequence[str]) -> Any:
    """Return texts x terms, words and characters with the same say."""
    counted = sparse.hstack([counter.transform(texts) for counter in counters], format="csr")
    return counted.multiply(np.float32(len(counters) ** -0.5)).tocsr()
