"""A trained model on new data: the run folder is enough, and labels come back as the user wrote them."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from karat.cli import main
from karat.errors import UserError
from karat.files.safe_csv import read_safe_csv
from karat.inference import new_data
from karat.inference.evaluation import predict_probabilities
from karat.inference.model import load_model
from karat.inference.new_data import evaluate_data, predict_run
from karat.settings.config import Config, DataSettings, TrainingSettings
from karat.training.fit import fit
from karat.training.run import train_run
from karat.training.tasks import task_of
from karat.training.trainer import Trainer

CLASSES = ["=1+1", "NA"]  # a formula to a spreadsheet, and a gap to pandas


def table(rows, seed):
    """Return a table of two features, the first of which tells the class: 0 ± 1 or 100 ± 1."""
    random = np.random.default_rng(seed)
    kind = np.arange(rows) % 2
    return pd.DataFrame(
        {
            "id": [f"r{row}" for row in range(rows)],
            "height": 100.0 * kind + random.normal(size=rows),
            "town": random.choice(["Bonn", "Rome"], rows),
            "label": np.array(CLASSES)[kind],
            "trusted": np.arange(rows) < 8,
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on a table that is gone afterwards."""
    folder = tmp_path_factory.mktemp("table")
    table(60, seed=0).to_csv(folder / "train.csv", index=False)
    training = TrainingSettings(steps=40, batch_size=20, device="cpu", threads=1)
    train_run(Config("supervised", data=DataSettings(str(folder / "train.csv")), training=training), folder / "run")
    (folder / "train.csv").unlink()
    (folder / "run" / "config.yaml").unlink()  # neither is needed
    return folder / "run"


def test_new_rows_get_the_labels_that_the_user_wrote(run, tmp_path, capsys):
    new = table(10, seed=1)
    new.drop(columns=["label", "trusted"]).to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "deep" / "predictions.csv"
    assert main(["predict", str(run), str(tmp_path / "new.csv"), "--out", str(out)]) == 0
    assert f"Predictions of 10 rows are in {out}." in capsys.readouterr().out
    found = read_safe_csv(out)
    assert list(found.columns) == ["id", "predicted_label", "confidence"]
    assert found["id"].tolist() == new["id"].tolist()
    assert found["predicted_label"].tolist() == new["label"].tolist()
    assert found["confidence"].between(0.5, 1).all()
    assert '"\'=1+1"' in out.read_text()  # a spreadsheet takes it for text

    assert main(["predict", str(run), str(tmp_path / "new.csv"), "--out", str(out), "--probabilities"]) == 0
    columns = [f"probability_{name}" for name in CLASSES]
    probabilities = pd.read_csv(out)[columns]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=2e-6)
    np.testing.assert_allclose(probabilities.max(axis=1), found["confidence"], atol=1e-9)


def test_evaluation_class_by_class(run, tmp_path, capsys):
    """Ten rows that the model gets right, two of whose labels are then swapped for the wrong ones: 8 of 10, 4 of 5."""
    new = table(10, seed=2)
    new.loc[0, "label"], new.loc[1, "label"] = CLASSES[1], CLASSES[0]
    new.to_csv(tmp_path / "new.csv", index=False)
    assert main(["evaluate", str(run), str(tmp_path / "new.csv")]) == 0
    printed = capsys.readouterr().out
    assert "80.00% of 10 examples" in printed
    assert printed.count("80.0%") == 4  # precision and recall of both
    assert "Confused most often" in printed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda new: new.assign(label="dog"), "labels that the model does not know ('dog')"),
        (lambda new: new.drop(columns="height"), "has no column 'height'"),
        (lambda new: new.drop(columns="label"), "label"),
    ],
)
def test_data_that_do_not_fit_get_one_sentence(run, tmp_path, capsys, change, message):
    change(table(6, seed=3)).to_csv(tmp_path / "new.csv", index=False)
    assert main(["evaluate", str(run), str(tmp_path / "new.csv")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_what_is_no_run_or_no_data_gets_one_sentence(run, tmp_path, capsys, command):
    old = tmp_path / "old"
    old.mkdir()
    (old / "config.yaml").write_text("method: ieg\n")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "schema.json").write_text('{"format": "karat model 1", "classes": ["a"]}')
    for folder, data, message in (
        (tmp_path / "nowhere", "x.csv", "There is no run in"),
        (old, "x.csv", "an older version made this run: train again"),
        (damaged, "x.csv", "is damaged"),
        (run, str(tmp_path / "missing.csv"), "missing.csv"),
    ):
        assert main([command, str(folder), data]) == 2
        error = capsys.readouterr().err.strip()
        assert message in error
        assert len(error.splitlines()) == 1
    assert main(["predict", str(run), "x.csv", "--out", str(tmp_path)]) == 2
    assert "is a folder: write --out FILE.csv" in capsys.readouterr().err


def test_the_model_in_python(run):
    model = load_model(run)
    new = table(6, seed=4)
    assert model.classes == tuple(CLASSES)
    probabilities = model.predict_proba(new[["height", "town"]])
    assert probabilities.shape == (6, 2)
    assert model.predict(new[["height", "town"]]) == new["label"].tolist()
    scaled = model.schema.inputs_of(new[["height", "town"]])
    assert np.array_equal(model.predict_proba(scaled), probabilities)
    with pytest.raises(UserError, match=r"inputs of shape \(3,\), and these have \(2,\)"):
        model.predict_proba(torch.zeros(1, 2))


def test_an_unfinished_run_predicts_with_its_newest_checkpoint(run, tmp_path, caplog):
    unfinished = tmp_path / "run"
    shutil.copytree(run, unfinished)
    for name in ("model.safetensors", "results.json", "checksums.json"):
        (unfinished / name).unlink()
    table(4, seed=5).to_csv(tmp_path / "new.csv", index=False)
    assert predict_run(unfinished, str(tmp_path / "new.csv"), tmp_path / "out.csv") == 4
    assert "is not finished: this is its model after step 40" in caplog.text
    inputs = torch.randn(3, 3)
    # With one cosine the selected weights are the averaged ones at the end.
    assert np.array_equal(load_model(unfinished).predict_proba(inputs), load_model(run).predict_proba(inputs))
    (unfinished / "checkpoint.pt").unlink()
    with pytest.raises(UserError, match="has no model yet"):
        load_model(unfinished)


@pytest.mark.parametrize("method", ["co_teaching", "rog"])
def test_methods_with_two_networks_or_another_head_are_built_again(method, tmp_path):
    training = TrainingSettings(steps=4, batch_size=20, device="cpu", threads=1)
    config = Config(method, data=DataSettings("wine", trusted_per_class=5), training=training)
    train_run(config, tmp_path, report=False)
    trainer = Trainer(config, task_of(config))
    fit(trainer)
    inputs = trainer.task.dataset.test.inputs
    expected = predict_probabilities(trainer.finished_models()["selected"].model, inputs)
    np.testing.assert_allclose(load_model(tmp_path).predict_proba(inputs), expected.numpy(), atol=1e-6)


def test_pretrained_networks_are_built_again_without_fetching(tmp_path):
    """`+pretrained` scales its inputs; the scale belongs to the name, so it comes back without the weights."""
    from karat.files.weights import save_weights
    from karat.models import build_model

    model = build_model("test_resnet+pretrained", (1, 32, 32), 2, fetch=False)
    save_weights(tmp_path / "model.safetensors", model)
    described = {"format": "karat model 1", "classes": ["a", "b"], "model": "test_resnet+pretrained", "networks": 1}
    (tmp_path / "schema.json").write_text(json.dumps({**described, "input_shape": [1, 32, 32], "schema": None}))
    images = torch.randn(2, 1, 32, 32)
    expected = predict_probabilities(model, images)
    loaded = load_model(tmp_path, "cpu")
    np.testing.assert_allclose(loaded.predict_proba(images), expected.numpy(), atol=1e-6)
    with pytest.raises(UserError, match="does not know how its inputs were scaled"):
        loaded.predict_proba(images.numpy())


def test_images_that_cannot_be_read_are_listed_or_left_without_a_prediction(tmp_path, capsys):
    random = np.random.default_rng(0)
    for row in range(24):
        kind = row % 2
        folder = tmp_path / "images" / ("trusted" if row < 6 else "train") / ("dark", "light")[kind]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((random.random((9, 9)) * 60 + 180 * kind).astype("uint8")).save(folder / f"{row}.png")
    run = tmp_path / "run"
    training = TrainingSettings(steps=2, batch_size=10, device="cpu", threads=1)
    train_run(Config("supervised", data=DataSettings(str(tmp_path / "images")), training=training), run, report=False)

    new = tmp_path / "new"
    new.mkdir()
    Image.fromarray(np.zeros((9, 9), dtype="uint8")).save(new / "a.png")
    (new / "b.png").write_bytes(b"no image")
    out = tmp_path / "out.csv"
    assert main(["predict", str(run), str(new), "--out", str(out)]) == 2
    assert "b.png" in capsys.readouterr().err
    assert not out.exists()
    assert main(["predict", str(run), str(new), "--out", str(out), "--on-bad-image", "skip"]) == 0
    found = read_safe_csv(out)
    assert found["id"].tolist() == ["a.png", "b.png"]
    assert found["predicted_label"][0] in ("dark", "light")
    assert found["predicted_label"][1] == ""
    assert np.isnan(found["confidence"][1])


def test_many_rows_show_their_progress(run, tmp_path, monkeypatch):
    """2,000 rows are four batches of 512; the last has 464."""
    seen = []

    class Shown(new_data.ProgressBar):
        def advance(self, n=1, **numbers):
            seen.append(n)
            super().advance(n, **numbers)

    monkeypatch.setattr(new_data, "ProgressBar", Shown)
    table(2000, seed=6).to_csv(tmp_path / "new.csv", index=False)
    assert predict_run(run, str(tmp_path / "new.csv"), tmp_path / "out.csv") == 2000
    assert seen == [512, 512, 512, 464]


def test_bundled_data_are_predicted_from_arrays(tmp_path):
    from sklearn.datasets import load_wine

    training = TrainingSettings(steps=30, batch_size=20, device="cpu", threads=1)
    config = Config("supervised", data=DataSettings("wine", trusted_per_class=5), training=training)
    train_run(config, tmp_path / "run", report=False)
    wine = load_wine()
    np.savez(tmp_path / "new.npz", inputs=wine.data, labels=wine.target_names[wine.target])
    assert predict_run(tmp_path / "run", str(tmp_path / "new.npz"), tmp_path / "out.csv") == 178
    found = read_safe_csv(tmp_path / "out.csv")["predicted_label"]
    assert (found == wine.target_names[wine.target]).mean() > 0.9
    assert evaluate_data(tmp_path / "run", str(tmp_path / "new.npz")).accuracy.count == 178
