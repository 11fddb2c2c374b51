"""What a run chooses by itself: affordable, enough, explained, and the same when it is resumed."""

import json
from dataclasses import replace

import pytest
import torch
import yaml

from karat.errors import UserError
from karat.models import build_model
from karat.settings.compare import differences
from karat.settings.config import Config, DataSettings, OptimizerSettings, TrainingSettings
from karat.settings.presets import preset
from karat.settings.read import read_config
from karat.training.plan import HOURS, choose_epochs, operations, plan, resolved, seconds_a_step, with_chosen
from karat.training.run import task_of, train_run
from karat.training.run_folder import chosen_settings


def test_digits_keep_the_run_that_the_readme_reports():
    """1,300 train digits less 100 trusted: small, 60 epochs, batches of 50, on whatever number of cores."""
    for cores in (1, 2, 64):
        found = plan((1, 12, 12), 1200, 10, cores=cores)
        assert (found.model, found.epochs, found.batch_size, found.steps) == ("small", 60, 50, 1440)
    for name in ("paper", "released"):
        assert preset(name).training.epochs == 60


@pytest.mark.parametrize(
    ("shape", "device", "model"),
    [
        ((5,), "cpu", "mlp"),
        ((256,), "cuda", "mlp"),
        ((257,), "cpu", "mlp-512"),
        ((1, 8, 8), "cuda", "small"),
        ((3, 64, 64), "cpu", "small"),
        ((3, 32, 32), "cuda", "wrn-28-2"),
        ((3, 64, 65), "cpu", "resnet18"),
        ((3, 224, 224), "cuda", "resnet-50"),
    ],
)
def test_every_kind_of_data_gets_a_network_that_can_be_built(shape, device, model, monkeypatch):
    monkeypatch.setattr("karat.training.plan.has_weights_here", lambda name: False)
    found = plan(shape, 5000, 3, device)
    assert found.model == model
    assert found.reasons[0].startswith(f"Network: {model}, for ")
    assert "--model NAME" in found.reasons[0]
    assert "--training.epochs N" in found.reasons[1]
    with torch.device("meta"):
        assert build_model(model, shape, 3)(torch.zeros(2, *shape)).shape == (2, 3)


def test_pretrained_weights_are_mentioned_where_they_are_and_never_taken_unasked(monkeypatch):
    monkeypatch.setattr("karat.training.plan.has_weights_here", lambda name: name == "resnet18")
    found = plan((3, 96, 96), 500, 3)
    assert found.model == "resnet18"
    assert any("--model resnet18+pretrained" in reason for reason in found.reasons)
    assert not any("pretrained" in reason for reason in plan((3, 32, 32), 500, 3).reasons)


def test_small_data_get_steps_and_large_data_stay_affordable():
    assert plan((13,), 100, 3).steps == 300  # 60 epochs of 5 batches
    assert plan((13,), 30, 3).steps == 300  # 2 batches an epoch
    for shape, rows in (((3, 32, 32), 50_000), ((1, 28, 28), 20_000)):
        found = plan(shape, rows, 10)
        assert 5 <= found.epochs < 60
        seconds = found.steps * seconds_a_step(operations("small", shape, 10), found.batch_size)
        assert 0.8 * HOURS["cpu"] < seconds / 3600 <= HOURS["cpu"]
        assert plan(shape, rows, 10, cores=16).epochs > found.epochs
    endless = plan((3, 64, 64), 1_000_000, 10)
    assert endless.epochs == 5
    assert "--data.limit N" in endless.reasons[1]


def test_what_is_given_is_kept_and_not_explained():
    found = plan((13,), 100, 3, model="mlp", epochs=3, batch_size=40)
    assert (found.model, found.epochs, found.batch_size, found.steps) == ("mlp", 3, 40, 9)
    assert found.chosen == found.reasons == ()
    assert plan((13,), 100, 3, steps=7).steps == 7
    assert plan((13,), 100, 3, steps=7).epochs is None
    assert plan((13,), 30, 3, batch_size=100).batch_size == 30  # fewer rows than a batch


def test_one_row_is_no_batch():
    with pytest.raises(UserError, match="There is 1 noisy example, too few for a batch"):
        plan((13,), 1, 3)


def test_counting_operations_computes_and_draws_nothing():
    """`small` at 8x8 has 3 pre-activation blocks; doubling the classes adds one multiply-add a feature and class."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    few, many = operations("small", (1, 8, 8), 10), operations("small", (1, 8, 8), 20)
    assert many - few == 2 * 64 * 10
    assert torch.equal(torch.get_rng_state(), before)


def test_more_time_never_means_fewer_epochs():
    counts = [choose_epochs(100, seconds, "cpu")[0] for seconds in (1e-6, 1.0, 30.0, 60.0, 300.0, 1e6)]
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (60, 5)


def wine(**training):
    settings = TrainingSettings(device="cpu", threads=1, **training)
    return Config("supervised", data=DataSettings("wine", trusted_per_class=5), training=settings)


def test_the_resolved_config_says_everything_and_resolves_to_itself():
    config = wine()
    task = task_of(config)
    settled, found = resolved(config, task, "cpu")
    assert (settled.model, settled.training.epochs, settled.training.batch_size) == ("mlp", 60, 20)
    again, nothing = resolved(settled, task, "cpu")
    assert again == settled
    assert nothing.chosen == ()
    assert (nothing.steps, nothing.batch_size) == (found.steps, found.batch_size)


def test_a_run_says_and_keeps_what_it_chose_and_a_resumed_one_does_not_choose_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("karat.training.plan.FEWEST_STEPS", 0)
    monkeypatch.setattr("karat.training.plan.EPOCHS", 2)
    folder = tmp_path / "run"
    train_run(wine(), folder)
    printed = capsys.readouterr().err
    written = json.loads((folder / "plan.json").read_text())
    assert all(f"karat: {reason}" in printed for reason in written["reasons"])
    stored = yaml.safe_load((folder / "config.yaml").read_text())
    assert (stored["model"], stored["training"]["epochs"], stored["training"]["batch_size"]) == ("mlp", 2, 20)

    monkeypatch.setattr("karat.training.plan.EPOCHS", 50)  # another machine would choose so
    train_run(wine(), folder, resume=True)
    assert "Length" not in capsys.readouterr().err
    assert json.loads((folder / "plan.json").read_text()) == written
    with pytest.raises(UserError, match=r"optimizer\.rate was 0\.1 and is now 0\.2"):
        train_run(replace(wine(), optimizer=OptimizerSettings(rate=0.2)), folder, resume=True)
    with pytest.raises(UserError, match=r"training\.epochs was 2 and is now 3"):
        train_run(wine(epochs=3), folder, resume=True)


def test_what_was_asked_for_is_not_taken_for_a_choice(tmp_path):
    """A run that was asked for wrn-28-2 is another one than a run that leaves the network open."""
    (tmp_path / "plan.json").write_text(json.dumps({"chosen": ["training.epochs"]}))
    chosen = chosen_settings(tmp_path)
    stored = {"method": "ieg", "model": "wrn-28-2", "training": {"epochs": 7, "batch_size": 50}}
    asked = {"method": "ieg", "model": "auto", "training": {"epochs": None, "batch_size": 50}}
    assert differences(stored, asked, chosen) == ["model was wrn-28-2 and is now auto"]
    taken = with_chosen(Config(), read_config(stored), chosen)
    assert (taken.model, taken.training.epochs, taken.training.batch_size) == ("auto", 7, None)
    assert chosen_settings(tmp_path / "nowhere") == frozenset()
