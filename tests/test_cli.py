"""The command line as a user meets it: runs, killed runs, and one sentence for every mistake."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from comparing import assert_same

from karat.cli import main
from karat.files.checkpoints import load_checkpoint
from karat.files.locks import locked
from karat.files.metrics_log import read_metrics

WINE = [
    *("--data.name", "wine", "--data.trusted_per_class", "5", "--noise.kind", "symmetric", "--noise.rate", "0.5"),
    *("--training.batch_size", "20", "--training.device", "cpu", "--training.threads", "1", "--model", "mlp"),
]


def train(folder, *options):
    return main(["train", *WINE, "--training.epochs", "3", "--run", str(folder), *options])


def test_train_leaves_a_complete_run_folder(tmp_path, capsys):
    folder = tmp_path / "run"
    assert train(folder, "--seed", "5") == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *("config.yaml", "environment.json", "noisy_labels.csv", "noise.json", "metrics.jsonl", "checkpoint.pt"),
        *("model.safetensors", "label_issues.csv", "results.json", "report.html", "report_files"),
        *("cleaned_labels.csv", "noise_estimate.json", "ledger.safetensors", "ledger-18.safetensors"),
        *("plan.json", "schema.json", "checksums.json", "reliability.json"),
    }
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["seed"] == 5
    assert config["methods"]["ieg"]["temperature"] == 0.5
    assert [record["epoch"] for record in read_metrics(folder / "metrics.jsonl")] == [1, 2, 3]
    results = json.loads((folder / "results.json").read_text())
    issues = pd.read_csv(folder / "label_issues.csv")
    assert len(issues) == 109  # 124 train wines less 15 trusted
    assert issues["label_quality"].is_monotonic_increasing

    capsys.readouterr()
    assert main(["evaluate", str(folder)]) == 0
    assert f"{results['selected']['top1']:.2%}" in capsys.readouterr().out


def test_noise_is_drawn_once_and_used_in_a_run(tmp_path, capsys):
    """The same seed gives the run the same noisy examples, so the file fits; 0.5 symmetric makes about half wrong."""
    file = tmp_path / "labels.npz"
    noise = ["--noise.kind", "symmetric", "--noise.rate", "0.5"]
    data = ["--data.name", "wine", "--data.trusted_per_class", "5"]
    assert main(["noise", str(file), "--seed", "5", *data, *noise]) == 0
    summary = json.loads((tmp_path / "labels.json").read_text())
    assert f"109 labels in {file}, {summary['realised_rate']:.2%} of them wrong" in capsys.readouterr().out

    from_file = ["--noise.kind", "none", "--noise.rate", "0", "--noise.labels_file", str(file)]
    assert train(tmp_path / "a", "--seed", "5", "--training.steps", "1", *from_file) == 0
    assert train(tmp_path / "b", "--seed", "5", "--training.steps", "1") == 0
    texts = [(tmp_path / run / "noisy_labels.csv").read_text() for run in "ab"]
    assert texts[0] == texts[1]


def test_the_validated_model_is_reported_where_examples_are_held_out(tmp_path, capsys):
    assert train(tmp_path, "--data.validation_share", "0.2") == 0
    assert "validated" in capsys.readouterr().out
    assert json.loads((tmp_path / "results.json").read_text())["validated"]["count"] == 54
    assert all("validation_accuracy" in record for record in read_metrics(tmp_path / "metrics.jsonl"))
    assert len(pd.read_csv(tmp_path / "label_issues.csv")) == 109 - 22  # 0.2 · 109, rounded


def test_a_run_folder_in_use_is_refused(tmp_path, capsys):
    with locked(tmp_path):
        assert train(tmp_path) == 2
    assert f"Another process is working on {tmp_path}" in capsys.readouterr().err
    assert train(tmp_path, "--training.steps", "1") == 0


def test_the_noisy_labels_of_a_run_can_be_used_again(tmp_path, capsys):
    assert train(tmp_path / "a", "--seed", "5", "--training.steps", "1") == 0
    labels = tmp_path / "a" / "noisy_labels.csv"
    again = ["--noise.kind", "none", "--noise.rate", "0", "--noise.labels_file", str(labels)]
    assert train(tmp_path / "b", "--seed", "5", *again) == 0
    assert (tmp_path / "b" / "noisy_labels.csv").read_text() == labels.read_text()
    # Another seed draws other trusted examples: the file does not know the labels of all noisy ones.
    capsys.readouterr()
    assert train(tmp_path / "c", "--seed", "6", *again) == 2
    assert "with the seed and limit they were made with" in capsys.readouterr().err


def test_config_file_preset_and_overrides_are_resolved_in_this_order(tmp_path, capsys):
    file = tmp_path / "run.yaml"
    file.write_text("preset: paper\nmethods.ieg:\n  consistency_weight: 3\n  temperature: 0.7\n")
    assert main(["train", "--config", str(file), "--methods.ieg.temperature", "0.9", "--run", str(tmp_path / "r"),
                 *WINE, "--training.steps", "1"]) == 0  # fmt: skip
    resolved = yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())
    assert resolved["methods"]["ieg"]["mixed_noisy_weight"] == 5  # preset
    assert resolved["methods"]["ieg"]["consistency_weight"] == 3  # file
    assert resolved["methods"]["ieg"]["temperature"] == 0.9  # command line
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_:
        main(["train", "mine.csv", "--preset", "released", "--print_config"])
    assert exit_.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["methods"]["ieg"]["look_ahead_rate"] == 0.1
    assert printed["data"]["name"] == "mine.csv"
    assert "source" not in printed


def test_a_saved_config_repeats_its_run(tmp_path):
    assert train(tmp_path / "a") == 0
    assert main(["train", "--config", str(tmp_path / "a" / "config.yaml"), "--run", str(tmp_path / "b")]) == 0
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()


KILLED = """
import os, signal, sys
from karat.cli import main
from karat.training.trainer import Trainer

def dying(real, calls):
    def call(*arguments):
        calls.pop() if calls else os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)
    return call

where, calls = sys.argv[1], [None] * int(sys.argv[2])
if where == "step":
    Trainer.train_step = dying(Trainer.train_step, calls)
else:
    os.replace = dying(os.replace, calls)
main(sys.argv[3:])
"""


def killed_after(where, calls, *arguments):
    """Run a command in a process that ends by SIGKILL at the call of a training step or of a file's move."""
    command = [sys.executable, "-c", KILLED, where, str(calls), *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    """SIGKILL twice, then --resume: model, metrics and label issues equal an undisturbed run's.

    The first kill is in the middle of an epoch of 6 steps, at step 45; the checkpoint is that of step 42. The second
    is while a checkpoint is being written: a resumed run begins with five files, then each checkpoint moves its ledger
    and itself into place. So the 5 + 2·3 + 1 = 12th move is the ledger of step 70, and its checkpoint never comes.
    """
    options = [*WINE, "--training.epochs", "30", "--training.checkpoint_every", "7"]
    killed, straight = tmp_path / "killed", tmp_path / "straight"
    killed_after("step", 45, "train", *options, "--run", killed)
    assert load_checkpoint(killed / "checkpoint.pt")["trainer"]["steps_done"] == 42
    assert len(read_metrics(killed / "metrics.jsonl")) == 45 // 6
    killed_after("move", 12, "train", "--run", killed, "--resume")
    assert load_checkpoint(killed / "checkpoint.pt")["trainer"]["steps_done"] == 63
    assert (killed / "ledger-70.safetensors").exists()
    assert not (killed / "results.json").exists()

    assert main(["train", "--run", str(killed), "--resume"]) == 0
    assert main(["train", *options, "--run", str(straight)]) == 0
    for name in ("model.safetensors", "label_issues.csv"):
        assert (killed / name).read_bytes() == (straight / name).read_bytes()
    states = [load_checkpoint(folder / "checkpoint.pt")["trainer"] for folder in (killed, straight)]
    assert_same(states[0], states[1])
    assert _without_time(killed) == _without_time(straight)


def _without_time(folder):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in read_metrics(folder / "metrics.jsonl")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "iegg"], "Unknown method 'iegg'. Did you mean 'ieg'?"),
        (["--model", "wrm-28-10"], "Unknown model 'wrm-28-10'. Did you mean 'wrn-28-10'?"),
        (["--preset", "papr"], "Unknown preset 'papr'. Did you mean 'paper'?"),
        (["--data.name", "digit"], "Unknown dataset (or file or folder of your own) 'digit'. Did you mean 'digits'?"),
        (["--data.name", "missing.npz"], "missing.npz"),
        (["--data.nam", "digits"], "There is no option '--data.nam'. Did you mean '--data.name'?"),
        (["--methd", "ieg"], "There is no option '--methd'. Did you mean '--method'?"),
        (["--noise.kind", "uniform", "--noise.rate", "1.5"], "The noise rate is 1.5: give a share from 0 to 1"),
        (["--noise.kind", "unifrm"], "Unknown noise 'unifrm'. Did you mean 'uniform'?"),
        (["--noise.rate", "lots"], "noise.rate: expected float. Got: lots"),
        (["--data.trusted_per_class", "500"], "too few for 500 trusted"),
        (["--data.trusted_per_class", "-1"], "ask for 0, which is none, or more"),
        (
            ["--method", "ieg", "--data.trusted_per_class", "0"],
            "Method ieg needs trusted examples of every class, and 10 of 10 classes have",
        ),
        (["--methods.ieg.views", "1"], "methods.ieg.views is 1: pseudo labels need 2 views or more"),
        (["--methods.ieg.mixup", "bta"], "methods.ieg.mixup: choose one of 'beta', 'approximate', 'none'. Got: bta"),
        (["--optimizer.name", "sdg"], "Unknown optimizer 'sdg'. Did you mean 'sgd'?"),
        (
            ["--optimizer.rate", "-1"],
            "The optimizer cannot be built (rate -1.0, weight decay 0.1",
        ),
        (["--optimizer.schedule", "cosin"], "Unknown schedule 'cosin'. Did you mean 'cosine'?"),
        (["--training.device", "tpu"], "training.device: choose one of 'auto', 'cpu', 'cuda'. Got: tpu"),
        (["--training.threads", "0"], "training.threads is 0: write 1 or more."),
        (["--training.average_decay", "1.5"], "The decay of the weight average is 1.5; it must be in [0, 1)."),
        (["--training.batch_size", "1"], "training.batch_size is 1: write 2 or more."),
        (["--training.steps", "ten"], "training.steps: expected int or null. Got: ten"),
        (["--seed", "-1"], "seed is -1: write a whole number from 0"),
        (
            ["--noise.rate", "0.8"],
            "Noise 'none' does not read noise.rate: leave it out, or write noise.kind: uniform or",
        ),
        (["--noise.kind", "asymmetric", "--noise.rate", "0.5", "--noise.class_map", "{0: 77}"], "77"),
        (["--methods.ieg.meta_layers", "0"], "methods.ieg.meta_layers is 0: write 1 or more, or null for all layers"),
        (["--methods.l2r.meta_layers", "0"], "methods.l2r.meta_layers is 0: write 1 or more, or null for all layers"),
        (["--methods.ieg.temperature", ".nan"], "methods.ieg.temperature is nan: write a number above 0"),
        (["--resume", "--preset", "paper"], "A resumed run keeps its settings: leave --preset out."),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--resume"], "There is no run to resume"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(options, message, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "--run", str(folder), *options]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in error if not line.startswith("karat: run folder")]) == 1
    assert message in error[-1]
    assert not folder.exists()


def test_unknown_keys_in_a_config_file_are_refused_with_a_suggestion(tmp_path, capsys):
    file = tmp_path / "run.yaml"
    file.write_text("methods:\n  ieg:\n    temprature: 1\n")
    assert main(["train", "--config", str(file)]) == 2
    assert "Did you mean 'methods.ieg.temperature'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The config file holds no settings: write `name: value` lines."),
        ("[1, 2]", "The config file holds no settings: write `name: value` lines."),
        ("just text", "The config file holds no settings: write `name: value` lines."),
        ("training: 5", "training is a section: give it `name: value` lines of its own."),
        ("data: digits", "data is a section: give it `name: value` lines of its own."),
        ("method: null", "Unknown method 'None'. Choose one of: arazo, "),
        ("preset: 5", "Unknown preset '5'. Choose one of: default, paper, released."),
    ],
)
def test_a_config_file_that_is_no_config_gets_one_sentence(text, message, tmp_path, capsys):
    file, folder = tmp_path / "run.yaml", tmp_path / "run"
    file.write_text(text)
    assert main(["train", *WINE, "--training.steps", "1", "--run", str(folder), "--config", str(file)]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert message in error[0]
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_gets_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        assert train(folder, "--training.steps", "1") == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_diverging_training_is_said(tmp_path, capsys):
    assert train(tmp_path / "run", "--optimizer.rate", "1e30") == 2
    assert "Lower rates did not help, 3 times" in capsys.readouterr().err


def test_resuming_on_other_data_is_refused(tmp_path, capsys):
    file = own_arrays(tmp_path, seed=0)
    options = ["--data.name", str(file), "--data.trusted_per_class", "3", "--training.steps", "3"]
    assert main(["train", *options, "--run", str(tmp_path / "run")]) == 0
    own_arrays(tmp_path, seed=1)
    capsys.readouterr()
    assert main(["train", "--run", str(tmp_path / "run"), "--resume"]) == 2
    assert "was trained on other data" in capsys.readouterr().err


def test_an_existing_run_is_not_overwritten(tmp_path, capsys):
    folder = tmp_path / "run"
    assert train(folder, "--training.steps", "1") == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    capsys.readouterr()
    assert train(folder) == 2
    assert "continue it with --resume, or choose another folder" in capsys.readouterr().err
    assert train(folder, "--resume", "--seed", "9") == 2
    assert "seed was 0 and is now 9" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    assert train(tmp_path / "mine") == 2
    assert "is not empty" in capsys.readouterr().err


def test_a_checkpoint_of_another_config_is_refused(tmp_path, capsys):
    for name, seed in (("a", "0"), ("b", "1")):
        assert train(tmp_path / name, "--training.steps", "2", "--seed", seed) == 0
    (tmp_path / "a" / "checkpoint.pt").write_bytes((tmp_path / "b" / "checkpoint.pt").read_bytes())
    capsys.readouterr()
    assert main(["train", "--run", str(tmp_path / "a"), "--resume"]) == 2
    assert "belongs to another config (seed was 1 and is now 0)" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "a")]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "There is no command 'trian'. Did you mean 'train'?"),
        (["evaluate", "nowhere"], "There is no run in nowhere"),
        (["evaluate"], "the following arguments are required: evaluate.run"),
        (["demo", "--resume"], "--resume needs the folder of the demo"),
        (["train", "--resume"], "--resume needs the folder of the run"),
        (["demo", "--seeed", "1"], "There is no option '--seeed'. Did you mean '--seed'?"),
    ],
)
def test_other_commands_say_what_is_wrong(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) == 1


def own_arrays(folder, seed, **more):
    """Write an .npz of somebody's own: string labels, grey images of an odd size."""
    random_numbers = np.random.default_rng(seed)
    labels = np.array(["cat", "dog"])[np.arange(60) % 2]
    images = (random_numbers.random((60, 9, 11)) * 60 + 120 * (labels == "dog")[:, None, None]).astype("uint8")
    train, test = slice(40), slice(40, None)
    file = folder / "mine.npz"
    np.savez(file, train_inputs=images[train], train_labels=labels[train], test_inputs=images[test],
             test_labels=labels[test], **more)  # fmt: skip
    return file


def test_own_arrays_are_trained_on(tmp_path):
    file, run = own_arrays(tmp_path, seed=0), tmp_path / "run"
    assert main(["train", "--data.name", str(file), "--data.trusted_per_class", "3", "--run", str(run),
                 "--training.epochs", "8", "--training.batch_size", "10"]) == 0  # fmt: skip
    results = json.loads((run / "results.json").read_text())
    assert results["selected"]["top1"] > 0.8
    assert set(pd.read_csv(run / "label_issues.csv")["given_label"]) == {"cat", "dog"}
    # Nobody knows which of a user's labels are wrong: nothing may claim to.
    assert results["noise_rate"] is None
    assert "true_label" not in (run / "noisy_labels.csv").read_text()
    assert not any("label_trust" in name and name != "label_trust" for name in read_metrics(run / "metrics.jsonl")[-1])


def test_own_trusted_examples_are_the_ones_that_are_used(tmp_path, capsys):
    trusted = np.isin(np.arange(40), [0, 1, 8, 9])
    file, run = own_arrays(tmp_path, seed=0, trusted=trusted), tmp_path / "run"
    options = ["train", "--data.name", str(file), "--training.steps", "3"]
    assert main([*options, "--run", str(run)]) == 0
    assert sorted(pd.read_csv(run / "label_issues.csv")["index"]) == np.flatnonzero(~trusted).tolist()
    own_arrays(tmp_path, seed=0, trusted=np.isin(np.arange(40), [0, 8]))
    assert main([*options, "--run", str(tmp_path / "one")]) == 0
    assert "1 class has no trusted example (dog): better verify at least one label of each" in capsys.readouterr().err
    own_arrays(tmp_path, seed=0, trusted=np.ones(39, dtype=bool))
    assert main([*options, "--run", str(tmp_path / "other")]) == 2
    assert "give one boolean for each of the 40 train examples" in capsys.readouterr().err


def test_demo_writes_what_it_promises(tmp_path, monkeypatch, capsys):
    """The demo with two epochs: the same code, tables and files."""
    import karat.demo
    from karat.settings.config import TrainingSettings

    monkeypatch.setattr(karat.demo, "TRAINING", TrainingSettings(epochs=2, device="cpu"))
    folder = tmp_path / "demo"
    assert main(["demo", "--run", str(folder)]) == 0
    output = capsys.readouterr().out
    assert "plain training on the true labels" in output
    assert "AUROC" in output
    for name in ("curves.png", "curves.svg", "coefficients.png", "suspicious.png", "label_issues.csv"):
        assert (folder / name).stat().st_size > 1000
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"supervised", "ieg", "karat", "ceiling"}
    assert main(["demo", "--run", str(folder)]) == 2
    assert main(["demo", "--run", str(folder), "--resume"]) == 0  # all is done: nothing is trained again
    assert main(["demo", "--run", str(folder / "ieg"), "--resume"]) == 2
    assert "There is no demo to resume" in capsys.readouterr().err
    assert Path(folder / "ieg" / "results.json").exists()
