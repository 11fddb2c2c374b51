"""Training on shards as a user meets it: every row once an epoch, resumed to the bit, and every command after it."""

import json
from dataclasses import replace

import pytest
import torch
from comparing import assert_same
from making import encoded, picture, tar_rows, write_tar
from pyarrow import parquet, table
from together import together

from karat.cli import main
from karat.data import blocks
from karat.data.images import ImageFiles
from karat.files.safe_csv import read_safe_csv, write_safe_csv
from karat.settings.config import Config, TrainingSettings
from karat.training.tasks import task_of
from karat.training.trainer import Trainer

COUNT = 36
SHORT = ["--training.device", "cpu", "--training.threads", "1", "--training.batch_size", "4", "--model", "fast-4"]


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Three Parquet files of six row groups with two rows each; a decoded image is never kept, and one row group is."""
    for shard in range(3):
        labels, trusted = ["cat", "dog"] * (COUNT // 6), [False] * (COUNT // 3 - 2) + [True] * 2
        columns = {"image": [encoded(picture(8, 8)) for _ in labels], "label": labels, "trusted": trusted}
        parquet.write_table(table(columns), tmp_path / f"train-{shard}.parquet", row_group_size=2)
    monkeypatch.setattr(blocks, "KEPT_BYTES", 1)
    monkeypatch.setattr(ImageFiles.__init__, "__defaults__", (0, 3))
    return Config(
        method="supervised",
        model="fast-4",
        data=replace(Config().data, name=str(tmp_path)),
        training=TrainingSettings(steps=18, batch_size=5, device="cpu"),
    )


def test_a_run_in_blocks_is_resumed_to_the_bit(settings):
    """Stopped after 8 of 18 steps, in the middle of the second of three passes over 30 rows, and of a block."""
    straight = Trainer(settings, task_of(settings))
    assert len(straight.streams.noisy._blocks.numbers.unique()) == 15
    for step in range(18):
        if step == 8:
            state = straight.state_dict()
            torch.save(state, settings.data.name + "/state.pt")
        straight.train_step()
    assert straight.ledger.times_seen.tolist() == [3] * 30
    torch.rand(7)
    resumed = Trainer(settings, task_of(settings))
    resumed.load_state_dict(torch.load(settings.data.name + "/state.pt", weights_only=True))
    while not resumed.finished:
        resumed.train_step()
    assert_same(resumed.state_dict(), straight.state_dict())


def test_processes_share_the_rows_of_a_batch(settings):
    """Both see every batch that one process sees; each reads its part of it."""

    def batches(ranks):
        read, trainer = [], Trainer(settings, task_of(settings), ranks=ranks)
        decode = ImageFiles._decode
        ImageFiles._decode = lambda self, row: read.append(row) or decode(self, row)
        try:
            seen = [trainer._next_batch(trainer._progress()) for _ in range(6)]
        finally:
            ImageFiles._decode = decode
        return [(batch.rows, batch.noisy_inputs) for batch in seen], read

    [(expected, all_rows)] = together(1, batches)
    (first, read_by_first), (second, read_by_second) = together(2, batches)
    assert sorted(torch.cat([rows for rows, _ in expected]).tolist()) == list(range(30))
    assert_same(first, expected)
    assert_same(second, expected)
    assert set(read_by_first) | set(read_by_second) == set(all_rows)
    assert len(read_by_first) < len(all_rows)


def test_every_command_works_on_shards(tmp_path, capsys):
    (tmp_path / "s").mkdir()
    for shard in range(2):
        members = tar_rows(["cat", "dog"] * 10, start=20 * shard, height=8, width=8)
        members |= {f"{20 * shard + row}.json": json.dumps({"trusted": True}) for row in range(4)}
        write_tar(tmp_path / f"s/train-{shard}.tar", members)
    write_tar(tmp_path / "s/test-0.tar", tar_rows(["cat", "dog"] * 3, height=8, width=8))
    (tmp_path / "s/train-2.tar").write_bytes(b"damaged")
    shards, run = f"{tmp_path}/s/*.tar", str(tmp_path / "run")
    train = ["train", shards, "--run", run, "--training.steps", "3", *SHORT]
    assert main(train) == 2
    assert "train-2.tar: it is damaged or no tar file (" in capsys.readouterr().err
    assert main([*train, "--on-bad-image", "skip"]) == 0
    assert '"train-2.tar"' in (tmp_path / "run/bad_images.csv").read_text()
    issues = read_safe_csv(tmp_path / "run/label_issues.csv")
    assert set(issues["id"]) == {f"train-{row // 20}.tar/{row}" for row in range(40) if row % 20 > 3}

    (tmp_path / "s/train-2.tar").unlink()
    assert main(["evaluate", run]) == 0
    assert main(["evaluate", run, shards]) == 0
    assert "of 6 examples" in capsys.readouterr().out
    assert main(["predict", run, shards, "--out", str(tmp_path / "predictions.csv")]) == 0
    assert len(read_safe_csv(tmp_path / "predictions.csv")) == 46
    assert main(["suggest", run, "--count", "3"]) == 0
    assert main(["sample", run, "--count", "5"]) == 0
    decisions = issues.head(2)[["id"]].assign(decision="other", label="dog")
    write_safe_csv(decisions, tmp_path / "decisions.csv")
    assert main(["apply", run, str(tmp_path / "decisions.csv"), "--out", str(tmp_path)]) == 0
    corrections = read_safe_csv(tmp_path / "labels.csv").set_index("id")
    assert corrections.loc[decisions["id"], "trusted"].all()
