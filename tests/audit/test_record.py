"""The ledger's file: everything comes back, foreign files are refused, and the audit needs nothing else."""

from dataclasses import replace

import pytest
import torch
from records import made_up, uniform
from safetensors import safe_open

from karat.audit.record import load_record, save_record, verified_sample
from karat.audit.run_audit import suggest_rows, write_audit, write_pred_probs
from karat.errors import UserError
from karat.files.tensors import read_tensors, write_tensors


def test_a_record_comes_back(tmp_path):
    names = ["", "=1", "a\nb", "é", *map(str, range(8))]
    record, _ = made_up(uniform(3, 0.5), examples=7, trusted=5, test=4, names=names, classes=("NA", "<b>", ""))
    save_record(record, tmp_path / "ledger.safetensors")
    back = load_record(tmp_path / "ledger.safetensors")
    assert back.classes == record.classes
    for part in ("noisy", "trusted"):
        mine, theirs = getattr(record, part), getattr(back, part)
        assert theirs.names == mine.names
        assert torch.equal(theirs.index, mine.index)
        assert torch.equal(theirs.labels, mine.labels)
    torch.testing.assert_close(back.ledger.state_dict(), record.ledger.state_dict(), equal_nan=True, rtol=0, atol=0)
    assert torch.equal(back.verified_labels, record.verified_labels)


def test_the_audit_is_rebuilt_from_the_ledger_alone(tmp_path):
    record, _ = made_up(uniform(4, 0.4), examples=100)
    save_record(record, tmp_path / "ledger.safetensors")
    write_audit(tmp_path)
    files = ("label_issues.csv", "cleaned_labels.csv", "noise_estimate.json")
    before = {name: (tmp_path / name).read_bytes() for name in files}
    for name in files:
        (tmp_path / name).unlink()
    write_audit(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in files} == before
    path, rows = suggest_rows(tmp_path, 7)
    assert path.exists()
    assert len(rows) == 7
    write_pred_probs(tmp_path, tmp_path / "p.npy")


def test_a_methods_own_judgement_is_taken_as_it_is(tmp_path):
    """With its own matrix the posterior is p·T: 0.8·0.5 for the given class, 0.1·0.25 for each of the two others."""
    record, _ = made_up(uniform(3, 0.5), examples=20)
    record.ledger.fill(torch.arange(20), torch.full((20, 3), 0.1).scatter(1, record.noisy.labels[:, None], 0.8))
    matrix = torch.full((3, 3), 0.25, dtype=torch.float64).fill_diagonal_(0.5)
    save_record(replace(record, transition=matrix), tmp_path / "ledger.safetensors")
    found = write_audit(tmp_path)
    assert found.issues["label_quality"].to_numpy() == pytest.approx(0.4 / 0.45, abs=1e-6)
    assert found.estimate.transition == matrix.tolist()


def test_tensors_are_written_as_safetensors_writes_them(tmp_path):
    """Odd sizes in any order: the library reads each of them back, empty ones too, and maps them at aligned places."""
    tensors = {
        "bytes": torch.arange(3, dtype=torch.uint8),
        "halves": torch.arange(5).half().reshape(1, 5),
        "none": torch.zeros(0, 4),
        "longs": torch.arange(4).reshape(2, 2),
    }
    write_tensors(tmp_path / "t.safetensors", tensors, {"format": "x"})
    with safe_open(tmp_path / "t.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "x"}
        for name, tensor in tensors.items():
            assert torch.equal(file.get_tensor(name), tensor)
            assert file.get_tensor(name).dtype == tensor.dtype


@pytest.mark.parametrize("content", [b"", b"not a ledger at all", b"\x08\0\0\0\0\0\0\0{}      "])
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "ledger.safetensors"
    with pytest.raises(UserError, match="is missing"):
        load_record(path)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"is damaged or is not|not a ledger of this version"):
        load_record(path)


def test_a_cut_file_is_refused(tmp_path):
    record, _ = made_up(uniform(3, 0.5), examples=50)
    path = tmp_path / "ledger.safetensors"
    save_record(record, path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match="is damaged"):
        read_tensors(path)


def test_very_many_test_examples_are_thinned_evenly():
    assert torch.equal(verified_sample(5), torch.arange(5))
    sample = verified_sample(1_000_000)
    assert len(sample) == 10_000
    assert len(sample.unique()) == 10_000
    assert sample[0] == 0
    assert sample[-1] == 999_999
