"""Photographs and a pretrained network from the first command to the last, as a user meets them."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from karat import KaratClassifier, load_model
from karat.cli import main
from karat.files.safe_csv import read_safe_csv, write_safe_csv
from karat.models.pretrained import PretrainedClassifier

CLASSES = ("blue", "green", "red")
SHORT = ["--training.device", "cpu", "--training.threads", "1", "--data.image_size", "72"]


def photograph(random: np.random.Generator, kind: int) -> Image.Image:
    """Return a picture of any size, brightest in one channel: 2 is blue, 1 green, 0 red."""
    height, width = random.integers(70, 120, 2)
    pixels = random.integers(0, 100, (height, width, 3), dtype=np.uint8)
    pixels[..., 2 - kind] += 120
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write photographs, of which every sixth noisy one lies in a wrong folder, and weights of a small network."""
    root, random = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    for part, count in (("train", 30), ("trusted", 6), ("test", 4)):
        for kind, name in enumerate(CLASSES):
            (root / "photos" / part / name).mkdir(parents=True)
            for number in range(count):
                wrong = part == "train" and number % 6 == 0
                picture = photograph(random, (kind + 1 + number // 6 % 2) % 3 if wrong else kind)
                picture.save(root / "photos" / part / name / f"{number}.{'png' if number % 2 else 'jpg'}")
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), root / "weights.safetensors")
    return root


def command(folder: Path, run: str, *more: str) -> list[str]:
    weights = ["--model", "timm:test_resnet", "--weights", str(folder / "weights.safetensors")]
    cache = ["--data.cache", str(folder / "cache")]
    return ["train", str(folder / "photos"), "--run", str(folder / run), *weights, *cache, *SHORT, *more]


@pytest.fixture(scope="module")
def run(folder) -> Path:
    assert main(command(folder, "run")) == 0
    return folder / "run"


def test_nothing_is_trained_and_the_model_is_one_network(run, folder):
    """The network's weights are those of the file, the head is new; schema.json says which weights, at which size."""
    assert json.loads((run / "plan.json").read_text())["steps"] == 1
    described = json.loads((run / "schema.json").read_text())["pretrained"]
    assert (described["architecture"], described["size"]) == ("test_resnet", 72)
    assert described["weights"] == str(folder / "weights.safetensors")
    model, given = load_file(run / "model.safetensors"), load_file(folder / "weights.safetensors")
    backbone = {name: tensor for name, tensor in model.items() if not name.startswith("head.")}
    assert len(backbone) == len(given) - 2  # without the head's weight and bias
    for name, tensor in backbone.items():
        assert torch.equal(tensor, given[name.removeprefix("backbone.network.")])
    assert model["head.weight"].shape[0] == 3


def test_the_model_predicts_without_the_weights_it_began_with(run, folder, tmp_path, capsys):
    moved = folder / "weights.safetensors"
    moved.rename(folder / "away")
    try:
        assert main(["predict", str(run), str(folder / "photos" / "test"), "--out", str(tmp_path / "out.csv")]) == 0
        assert main(["evaluate", str(run), str(folder / "photos")]) == 0
        assert main(["evaluate", str(run)]) == 0
        assert main(["report", str(run)]) == 0
    finally:
        (folder / "away").rename(moved)
    found = read_safe_csv(tmp_path / "out.csv")
    right = [name.split("/")[0] for name in found["id"]] == found["predicted_label"]
    measured = json.loads((run / "results.json").read_text())["selected"]["top1"]
    assert right.mean() == pytest.approx(measured)  # the head on stored features says what the whole model says
    assert measured > 0.9
    assert any((run / "report_files").glob("sheet-*.jpg"))


def test_features_are_computed_once_for_all_runs(run, folder, monkeypatch):
    monkeypatch.setattr(PretrainedClassifier, "features", lambda *images: pytest.fail("computed again"))
    assert main(command(folder, "again")) == 0
    same = ("label_issues.csv", "cleaned_labels.csv")
    assert all((folder / "again" / name).read_bytes() == (run / name).read_bytes() for name in same)


def test_a_killed_run_goes_on_with_the_features_that_it_has(run, folder, monkeypatch, tmp_path, capsys):
    """90 noisy images are blocks of 32, 32 and 26: two of them are computed before the process is killed."""
    whole, blocks = PretrainedClassifier.features, []

    def counted(model, images):
        blocks.append(len(images))
        if len(blocks) == 3:
            raise KeyboardInterrupt
        return whole(model, images)

    monkeypatch.setattr(PretrainedClassifier, "features", counted)
    other = ["--data.cache", str(tmp_path)]
    assert main(command(folder, "killed", *other)) == 130
    assert main(command(folder, "killed", *other)) == 0
    assert blocks[:3] == [32, 32, 26]
    assert sum(blocks[3:]) == 120 - 64  # and 18 trusted and 12 test images
    assert "the same command goes on with the features that are there" in capsys.readouterr().err
    assert (folder / "killed" / "label_issues.csv").read_bytes() == (run / "label_issues.csv").read_bytes()


def test_a_cache_that_cannot_be_written_costs_time_alone(run, folder, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    assert main(command(folder, "without", "--data.cache", str(tmp_path / "file" / "in"))) == 0
    assert "cannot be kept in" in caplog.text
    assert (folder / "without" / "label_issues.csv").read_bytes() == (run / "label_issues.csv").read_bytes()


def test_rows_are_suggested_sampled_and_applied(run, folder, tmp_path):
    assert main(["suggest", str(run), "--count", "5"]) == 0
    assert len(read_safe_csv(run / "suggestions.csv")) == 5
    assert main(["sample", str(run), "--count", "5"]) == 0
    rows = read_safe_csv(run / "sample.csv").assign(decision="keep", label="")
    write_safe_csv(rows, tmp_path / "decisions.csv")
    assert main(["estimate", str(run), str(tmp_path / "decisions.csv")]) == 0
    assert main(["apply", str(run), str(tmp_path / "decisions.csv"), "--out", str(tmp_path)]) == 0
    corrected = command(folder, "corrected", "--data.corrections", str(tmp_path / "labels.csv"))
    assert main(corrected) == 0
    first = ["suggest", str(folder / "photos"), "--run", str(folder / "first"), "--data.image_size", "72"]
    weights = ["--model", "timm:test_resnet", "--weights", str(folder / "weights.safetensors")]
    assert main([*first, *weights, "--data.cache", str(folder / "cache")]) == 0


def test_a_network_is_fine_tuned_on_the_verdict(run, folder):
    """All weights move, the verdict does not, and the model in the folder is the one that was measured."""
    assert main(command(folder, "tuned", "--training.fine_tune", "2")) == 0
    tuned, given = load_file(folder / "tuned" / "model.safetensors"), load_file(run / "model.safetensors")
    moved = {name for name in given if not torch.equal(tuned[name], given[name])}
    assert {"head.weight", "backbone.network.conv1.0.weight"} <= moved
    assert not any(name.endswith("running_mean") for name in moved)
    assert (folder / "tuned" / "label_issues.csv").read_bytes() == (run / "label_issues.csv").read_bytes()
    results = json.loads((folder / "tuned" / "results.json").read_text())
    assert results["selected"]["loss"] < results["averaged"]["loss"]  # that of the fitted head; test labels are right
    assert main(["evaluate", str(folder / "tuned")]) == 0


def test_other_methods_train_a_network_that_begins_with_the_weights(folder, tmp_path):
    arguments = command(folder, "supervised", "--method", "supervised", "--training.steps", "2")
    assert main([*arguments, "--training.batch_size", "8"]) == 0
    assert load_model(folder / "supervised").predict(np.zeros((1, 72, 72, 3), dtype=np.uint8))[0] in CLASSES


def test_the_estimator_takes_arrays(folder):
    random = np.random.default_rng(1)
    labels = np.arange(40) % 2
    images = random.integers(0, 100, (40, 24, 24, 3), dtype=np.uint8)
    images[labels == 1, :, :, 0] += 120
    settings = {"weights": str(folder / "weights.safetensors")}
    classifier = KaratClassifier(model="timm:test_resnet", settings=settings, random_state=0)
    classifier.fit(images, labels, trusted=np.arange(40) < 10)
    assert classifier.score(images, labels) == 1
    assert isinstance(classifier.network_, PretrainedClassifier)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"\x80\x02garbage", "is damaged, or holds more than tensors and could run code"),
        (pickle.dumps(print), "could run code"),
        (None, "is a folder, not a file"),
        ("resnet18", "are not those of 'test_resnet' ("),
    ],
)
def test_weights_that_cannot_be_used_are_one_sentence_and_leave_nothing(folder, tmp_path, content, sentence, capsys):
    path = tmp_path / "weights"
    if content is None:
        path.mkdir()
    elif isinstance(content, str):
        with torch.device("meta"):
            shapes = timm.create_model(content).state_dict()
        save_file({name: torch.zeros(tensor.shape) for name, tensor in shapes.items()}, path)
    else:
        path.write_bytes(content)
    arguments = command(folder, "refused")
    arguments[arguments.index("--weights") + 1] = str(path)
    assert main(arguments) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("karat: ")]
    assert sentence in said[-1]
    assert not (folder / "refused").exists()
