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
from karat.training.plan import MINUTES, choose_epochs, plan, resolved, with_chosen
from karat.training.run import train_run
from karat.training.run_folder import chosen_settings
from karat.training.speed import COSTS, OF_FAST, measured_seconds, operations, seconds_a_step
from karat.training.tasks import task_of


def test_digits_keep_the_run_that_the_readme_reports():
    """1,300 train digits less 100 trusted: fast, 60 epochs, batches of 50, on whatever number of cores."""
    for cores in (1, 2, 64):
        found = plan((1, 12, 12), 1200, 10, cores=cores)
        assert (found.model, found.epochs, found.batch_size, found.steps) == ("fast", 60, 50, 1440)
    for name in ("paper", "released"):
        assert preset(name).training.epochs == 60


@pytest.mark.parametrize(
    ("shape", "device", "model"),
    [
        ((5,), "cpu", "mlp"),
        ((256,), "cuda", "mlp"),
        ((257,), "cpu", "mlp-512"),
        ((1, 8, 8), "cuda", "fast"),
        ((3, 64, 64), "cpu", "fast"),
        ((3, 32, 32), "cuda", "fast-64"),
        ((1, 6, 20), "cpu", "small"),
        ((3, 64, 65), "cpu", "resnet18"),
        ((3, 224, 224), "cuda", "resnet-50"),
    ],
)
def test_every_kind_of_data_gets_a_network_that_can_be_built(shape, device, model):
    found = plan(shape, 4000, 3, device)
    assert found.model.removesuffix("-16") == model
    assert found.reasons[0].startswith(f"Network: {found.model}, ")
    assert "--model NAME" in found.reasons[0]
    assert "--training.epochs N" in found.reasons[1]
    with torch.device("meta"):
        assert build_model(model, shape, 3)(torch.zeros(2, *shape)).shape == (2, 3)


def test_pretrained_weights_that_are_not_here_are_mentioned_where_they_would_help():
    assert "--data.download true" in plan((3, 96, 96), 500, 3, method="karat").reasons[-1]
    for other in (plan((3, 96, 96), 500, 3), plan((1, 28, 28), 500, 3, method="karat"), plan((3,), 500, 3)):
        assert not any("pretrained" in reason for reason in other.reasons)


def test_a_head_on_the_features_of_a_network_is_fitted_at_once():
    found = plan((1280,), 12_000, 10, model="auto", method="karat", encoder="timm:resnet50+pretrained")
    assert (found.model, found.epochs, found.steps) == ("timm:resnet50+pretrained", 1, 3)  # 5,000 rows at once
    assert "model" in found.chosen
    assert "model" not in plan((1280,), 12_000, 10, model="resnet50", method="karat", encoder="resnet50").chosen


def test_small_data_get_steps_and_large_data_stay_affordable():
    assert plan((13,), 100, 3).steps == 300  # 60 epochs of 5 batches
    assert plan((13,), 30, 3).steps == 300  # 2 batches an epoch
    for shape, rows in (((3, 32, 32), 50_000), ((1, 28, 28), 20_000)):
        found = plan(shape, rows, 10, method="karat")
        assert 5 <= found.epochs < 60
        reckoned = operations(found.model, shape, 10) / OF_FAST
        seconds = found.steps * seconds_a_step(reckoned, found.batch_size, cost=COSTS["karat"])
        assert 0.8 * MINUTES["cpu"] < seconds / 60 <= MINUTES["cpu"]
        assert plan(shape, rows, 10, cores=16, method="karat").epochs > found.epochs
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
    counts = [choose_epochs(100, seconds, minutes=30)[0] for seconds in (1e-6, 1.0, 30.0, 60.0, 300.0, 1e6)]
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (60, 5)


def test_minutes_take_the_widest_network_that_sees_the_data_often_enough():
    """A plain step of fast-64 takes 0.8 s, of half the width a quarter: 5,000 images in batches of 100 are 50 steps.

    Of 10 minutes 480 s are for steps. fast-64 needs 40 s a pass: 12 passes, enough. With karat, whose step costs
    three, it makes 4; fast-32 needs 30 s a pass and makes 16.
    """
    seconds = {"fast-64": 0.8, "fast-32": 0.2, "fast-16": 0.05, "fast-8": 0.01}

    def found(minutes, method):
        measure = lambda model, batch_size: seconds[model]  # noqa: E731
        return plan((3, 32, 32), 5000, 10, minutes=minutes, method=method, measure=measure)

    assert (found(10, "supervised").model, found(10, "supervised").epochs) == ("fast-64", 12)
    assert (found(10, "karat").model, found(10, "karat").epochs) == ("fast-32", 16)
    assert found(0.01, "karat").model == "fast-8"
    assert found(0.01, "karat").epochs == 1
    assert found(0.01, "karat").reasons[1].startswith("Length: 1 epoch of 50 batches")
    assert found(10_000, "karat").epochs == 60
    assert "the widest that makes 12 passes" in found(10, "karat").reasons[0]
    assert "as many as fit into 10 minutes" in found(10, "karat").reasons[1]


def test_enough_steps_of_enough_images_get_a_wider_network_in_half_an_hour():
    """12 passes of 9,900 images; a step of karat with `fast-32` is reckoned at 0.015 + 3·100·66e6/2.4e10 = 0.84 s."""
    assert plan((3, 32, 32), 9_900, 10, method="karat", steps=1_200, batch_size=100).model == "fast-32"
    assert plan((3, 32, 32), 9_900, 10, method="karat", steps=1_200, batch_size=200).model == "fast-16"  # 1.67 s
    assert plan((3, 32, 32), 4_900, 10, method="karat", steps=1_200, batch_size=100).model == "fast-16"  # few images
    assert plan((3, 32, 32), 9_900, 10, method="karat", steps=900, batch_size=100).model == "fast"  # few steps
    assert plan((3, 32, 32), 9_900, 10, method="ieg", steps=1_200, batch_size=100).model == "fast-16"  # 8 instead of 3
    assert plan((1, 16, 16), 9_900, 10, method="karat", steps=1_200, batch_size=100).model == "fast"  # tiny
    assert "makes 12.1 passes in 30 minutes" in plan((3, 32, 32), 9_900, 10, steps=1_200, batch_size=100).reasons[0]
    long = plan((3, 32, 32), 9_900, 10, method="karat")
    assert (long.model, long.epochs >= 12) == ("fast-32", True)


def test_the_speed_of_this_machine_is_measured_without_a_trace():
    before = torch.get_rng_state()
    assert 0 < measured_seconds((1, 8, 8), 3, "cpu", "fast-2", 10) < 10
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_by_minutes_is_kept_and_resumed(tmp_path):
    config = replace(wine(minutes=0.05, checkpoint_every=1), method="supervised")
    train_run(config, tmp_path / "run", report=False)
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert stored["training"]["minutes"] == 0.05
    assert stored["training"]["epochs"] >= 1
    assert {"training.epochs", "optimizer.name", "optimizer.rate"} <= chosen_settings(tmp_path / "run")
    train_run(config, tmp_path / "run", resume=True, report=False)  # on a machine that is quicker now


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
