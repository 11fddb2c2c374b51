"""The validation split, and what noise leaves behind in files."""

import json

import pytest
import torch

from karat.data.noise.label_files import load_labels
from karat.data.noise.labels import NoisyLabels
from karat.data.noise.summary import noise_summary, write_noise
from karat.data.settings import DataSettings, NoiseSettings
from karat.data.task import prepare_task
from karat.errors import UserError
from karat.noise_matrix import symmetric_transition

NOISE = NoiseSettings("symmetric", rate=0.4)


def test_a_share_of_the_noisy_examples_is_held_out_with_noisy_labels():
    whole = prepare_task(DataSettings("wine"), NOISE)
    task = prepare_task(DataSettings("wine", validation_share=0.25), NOISE)
    count = len(whole.noisy)
    assert whole.validation is None
    assert len(task.validation) == round(0.25 * count)
    assert len(task.noisy) == len(task.labels.given) == len(task.noisy_rows) == count - len(task.validation)
    assert torch.equal(task.noisy.labels, task.labels.given)
    assert torch.equal(task.trusted.inputs, whole.trusted.inputs)
    rows, labels = task.all_labels()
    assert torch.equal(rows, whole.noisy_rows)
    assert torch.equal(labels.true, whole.labels.true)
    assert 0 < task.validation_labels.rate < 1  # not the true labels
    train = task.dataset.train
    for examples, places in ((task.noisy, task.noisy_rows), (task.validation, task.validation_rows)):
        assert torch.equal(examples.inputs, train.inputs[places])
    assert torch.equal(task.validation.labels, task.validation_labels.given)


def test_the_seed_alone_decides_who_is_held_out():
    data = DataSettings("wine", validation_share=0.25)
    first, second = (prepare_task(data, noise, seed=1) for noise in (NOISE, NoiseSettings()))
    assert torch.equal(first.validation_rows, second.validation_rows)
    assert not torch.equal(first.validation_rows, prepare_task(data, NOISE, seed=2).validation_rows)


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (-0.1, r"data.validation_share is -0.1: write a share from 0 to below 0\.9"),
        (0.9, "write a share from 0 to below"),
        (float("nan"), "write a share from 0 to below"),
        (0.001, "holds out 0: choose a share that holds out at least one example and leaves one"),
    ],
)
def test_unusable_share(share, message):
    with pytest.raises(UserError, match=message):
        prepare_task(DataSettings("wine", validation_share=share), NOISE)


@pytest.mark.parametrize("ending", [".npz", ".csv"])
def test_written_noise_can_be_used_again_and_is_summed_up(tmp_path, ending):
    data = DataSettings("wine", validation_share=0.2)
    task = prepare_task(data, NOISE, seed=3)
    file = tmp_path / f"labels{ending}"
    summary = write_noise(task, file)
    assert {path.name for path in tmp_path.iterdir()} == {file.name, "labels.json"}
    assert json.loads((tmp_path / "labels.json").read_text()) == summary
    assert summary["asked_rate"] == pytest.approx(0.4)
    assert summary["examples"] == len(task.noisy) + len(task.validation)
    again = prepare_task(data, NoiseSettings(labels_file=file), seed=3)
    assert torch.equal(again.noisy.labels, task.noisy.labels)
    assert torch.equal(again.validation.labels, task.validation.labels)
    assert again.labels.rate == task.labels.rate


def test_a_file_without_true_labels_is_judged_by_a_curated_dataset(tmp_path):
    task = prepare_task(DataSettings("wine"), NOISE)
    rows, labels = task.all_labels()
    file = tmp_path / "human.csv"
    lines = [f"{row},{task.dataset.classes[label]}" for row, label in zip(rows, labels.given, strict=True)]
    file.write_text("\n".join(["index,label", *lines]))
    again = prepare_task(DataSettings("wine"), NoiseSettings(labels_file=file, labels_column="label"))
    assert torch.equal(again.labels.given, labels.given)
    assert torch.equal(again.labels.true, labels.true)
    assert load_labels(file, rows, 3, column="label", names=task.dataset.classes).true is None


def test_summary_counts_what_is_known():
    """Of 4 labels one is foreign (1 wrong) and three have 0.5 · 3 = 1.5 wrong to expect: (1 + 1.5) / 4 = 0.625."""
    given, true = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, -1])
    summary = noise_summary(NoisyLabels(given, true, 3, symmetric_transition(3, 0.5)))
    assert summary["asked_rate"] == 0.625
    assert summary["realised_rate"] == 0.5
    assert (summary["examples"], summary["wrong"], summary["open_set"]) == (4, 2, 1)
    assert (summary["given_counts"], summary["true_counts"]) == ([1, 2, 1], [2, 1, 0])
    assert summary["realised_transition"] == [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], None]
    json.loads(json.dumps(summary, allow_nan=False))
    unknown = noise_summary(NoisyLabels(given, None, 3, None))
    assert unknown["examples"] == 4
    assert unknown["asked_rate"] is unknown["realised_rate"] is unknown["realised_transition"] is None


def test_a_file_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"Cannot write .*: choose another file"):
        write_noise(prepare_task(DataSettings("wine"), NOISE), tmp_path / "file" / "labels.npz")
