"""Texts as vectors: what is alike lies together, and the run folder gives back the very numbers."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from karat.data.sentence_encoder import load_sentence_encoder
from karat.data.text import FILE, fit_encoder, fit_tfidf, load_text_encoder, strongest_directions, texts_of
from karat.errors import UserError

TEXTS = [
    f"{colour} {thing} number {place}"
    for place in range(10)
    for colour in ("red", "green")
    for thing in ("car", "pear")
]


def test_vectors_have_one_length_and_alike_texts_lie_together():
    encoder = fit_tfidf(TEXTS)
    vectors = encoder.encode(["a red car", "the red cars", "green pear", "§"])[:]
    torch.testing.assert_close(vectors.norm(dim=1)[:3], torch.full((3,), encoder.width**0.5))
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    assert not vectors[3].any()


def test_the_run_folder_gives_back_the_very_numbers(tmp_path):
    whole, texts = fit_tfidf([*TEXTS, "naïve café 東京"]), ["naïve red café", "東京"]
    for encoder in (whole, replace(whole, directions=None)):
        encoder.save(tmp_path)
        again = load_text_encoder(encoder.describe(), tmp_path)
        assert torch.equal(again.encode(texts)[:].to_dense(), encoder.encode(texts)[:].to_dense())


def test_a_damaged_file_is_refused(tmp_path):
    encoder = fit_tfidf(TEXTS)
    encoder.save(tmp_path)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="train again"):
        load_text_encoder(encoder.describe(), tmp_path)
    replace(encoder, directions=encoder.directions[:-1]).save(tmp_path)
    with pytest.raises(UserError, match="do not fit together"):
        load_text_encoder(encoder.describe(), tmp_path)


def test_directions_span_what_a_singular_value_decomposition_finds():
    """Rows in a space of four directions: the projection on them leaves the rows as they are."""
    random = np.random.RandomState(0)
    rows = sparse.csr_matrix(random.normal(size=(60, 4)) @ random.normal(size=(4, 30)), dtype=np.float32)
    found = strongest_directions(rows, 4, random)
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-4)
    np.testing.assert_allclose(rows @ found @ found.T, rows.toarray(), atol=1e-3)


def test_no_letter_at_all_is_said():
    with pytest.raises(UserError, match="no text with a letter or digit"):
        fit_tfidf(["…", "!!"])


def test_texts_come_from_lists_and_columns():
    assert texts_of(("a", "b"), "text") == texts_of(pd.DataFrame({"text": ["a", "b"]}), "text") == ["a", "b"]
    with pytest.raises(UserError, match="no column 'text'"):
        texts_of(pd.DataFrame({"words": ["a"]}), "text")
    with pytest.raises(UserError, match="The model takes texts"):
        texts_of(np.zeros((2, 2)), "text")


def test_an_encoder_without_its_library_or_its_files_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UserError, match=r"pip install karat\[text\]"):
        fit_encoder("some/encoder", TEXTS)


@pytest.fixture
def tiny_encoder(tmp_path):
    """An encoder of 16 numbers with random weights and a vocabulary of letters."""
    pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed: pip install karat[text]"
    )
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path / "bert"
    folder.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder)
    model = Transformer(str(folder))
    SentenceTransformer(modules=[model, Pooling(16)], device="cpu").save(str(tmp_path / "encoder"))
    return tmp_path / "encoder"


def test_an_encoder_in_a_folder_encodes_and_is_known_again(tiny_encoder):
    encoder = fit_encoder(str(tiny_encoder), TEXTS)
    vectors = encoder.encode(TEXTS[:3])
    assert encoder.width == 16
    assert vectors.shape == (3, 16)
    again = load_text_encoder(encoder.describe(), tiny_encoder)
    assert torch.equal(again.encode(TEXTS[:3]), vectors)
    with pytest.raises(UserError, match="other weights"):
        load_sentence_encoder(str(tiny_encoder), digest="0")


def test_an_encoder_that_is_not_there_is_not_fetched():
    pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed: pip install karat[text]"
    )
    with pytest.raises(UserError, match="is not on this machine"):
        fit_encoder("nobody/no-such-encoder", TEXTS)
