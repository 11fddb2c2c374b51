"""A config from values of any origin: what wins, what is refused, and what old names are told."""

import pytest
import yaml

from karat.cli import main
from karat.errors import UserError
from karat.settings.command_line import parse
from karat.settings.config import Config, config_as_dict
from karat.settings.presets import PRESETS
from karat.settings.read import read_config, read_run_config
from karat.settings.renamed import RENAMED


def from_command_line(*arguments):
    return parse(["train", *arguments]).train.config


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ([], {}),
        (["--preset", "released"], {"preset": "released"}),
        (["wine", "--training.steps", "5"], {"data": {"name": "wine"}, "training.steps": 5}),
        (["--noise.class_map", "{9: 1}"], {"noise.class_map": {9: 1}}),
        (["--on-bad-image", "skip"], {"data.on_bad_image": "skip"}),
        (
            ["--optimizer.options", '{"eps": 1e-6, "betas": [0.8, 0.9]}'],
            {"optimizer": {"options": {"eps": 1e-6, "betas": [0.8, 0.9]}}},
        ),
        (["--optimizer.options.betas", "[0.8, 0.9]"], {"optimizer.options": {"betas": [0.8, 0.9]}}),
    ],
)
def test_command_line_python_and_a_file_make_the_same_config(arguments, values, tmp_path):
    expected = read_config(values)
    assert from_command_line(*arguments) == expected
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump({"seed": 0, **values}))
    assert from_command_line("--config", str(file)) == expected
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config_as_dict(expected)))
    assert read_run_config(tmp_path) == expected


def test_values_stand_above_the_start_and_the_start_above_presets():
    start = read_config({"preset": "paper", "training.steps": 7, "seed": 3})
    config = read_config({"seed": 4, "methods": {"ieg": {"temperature": 0.3}}}, start)
    assert (config.seed, config.training.steps, config.method) == (4, 7, "ieg")
    assert (config.methods.ieg.temperature, config.methods.ieg.consistency_weight) == (0.3, 20.0)


def test_the_presets_set_the_three_methods_that_share_choices():
    """The paper's text and code say p = 5, k = 20; the code also normalises and adds 1e-5 to the sum of the weights."""
    for name, epsilon, normalize in (("paper", 0.0, False), ("released", 1e-5, True)):
        methods = PRESETS[name].methods
        for own in (methods.ieg, methods.mixmatch_kl):
            assert (own.mixed_noisy_weight, own.consistency_weight, own.normalize_logits) == (5, 20, normalize)
        assert methods.ieg.weights_epsilon == methods.l2r.weights_epsilon == epsilon


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"training": 5}, "training is a section: give it `name: value` lines"),
        ({"methods.ieg": 5}, "ieg"),
        ({"methods.ieg.views": 1}, r"^methods\.ieg\.views is 1: pseudo labels need 2 views or more\."),
        ({"methods.mixmatch_kl.views": 1}, r"^methods\.mixmatch_kl\.views is 1"),
        ({"methods.mixmatch_kl.temperature": 0}, r"^methods\.mixmatch_kl\.temperature is 0\.0: write a number above 0"),
        (
            {"methods.mixmatch_kl.consistency_weight": -1},
            r"^methods\.mixmatch_kl\.consistency_weight is -1\.0: write 0",
        ),
        ({"methods.l2r.weights_epsilon": -1}, r"^methods\.l2r\.weights_epsilon is -1\.0: write 0 or more"),
        ({"methods.l2r.temperature": 1}, "There is no setting 'methods.l2r.temperature'"),
        ({"optimizer.options": 5}, "optimizer.options: expected dict"),
        ({"preset": "papr"}, "Unknown preset 'papr'. Did you mean 'paper'"),
    ],
)
def test_mistakes(values, message):
    with pytest.raises(UserError, match=message):
        read_config(values)


OLD = {
    "algorithm.temperature": "methods.ieg.temperature (and methods.mixmatch_kl.temperature)",
    "algorithm.derivative": "methods.ieg.derivative (and methods.l2r.derivative)",
    "algorithm.threshold": "methods.ieg.threshold",
    "data.labels_file": "data.corrections",
}


@pytest.mark.parametrize("name", OLD)
def test_old_names_are_told_the_new_ones(name, tmp_path, capsys):
    sentence = f"{name} is now {OLD[name]}."
    with pytest.raises(UserError) as caught:
        read_config({name: 1})
    assert str(caught.value) == sentence
    section, setting = name.split(".")
    file, recipe, run = (tmp_path / one for one in ("mine.yaml", "recipe.yaml", "config.yaml"))
    file.write_text(f"{section}:\n  {setting}: 1\n")
    recipe.write_text(f"columns: {{a: {{}}}}\nrows: {{ieg: {{settings: {{{name}: 1}}}}}}\n")
    run.write_text(file.read_text())
    again = f"{run} does not fit this version of Karat: {sentence} Train again."
    for command, said in (
        (["train", f"--{name}", "1"], sentence),
        (["train", f"--{name}=1"], sentence),
        (["train", "--config", str(file)], sentence),
        (["bench", str(recipe), "--list"], f"{recipe}, row ieg, column a: {sentence}"),
        (["train", "--run", str(tmp_path), "--resume"], again),
        (["evaluate", str(tmp_path)], again),
    ):
        assert main(command) == 2
        assert capsys.readouterr().err.strip() == f"karat: {said}"


def test_a_mistyped_old_name_is_a_mistake_like_any_other():
    with pytest.raises(UserError, match=r"There is no setting 'algorithm\.temprature'"):
        read_config({"algorithm.temprature": 1})


def test_no_old_name_is_a_legal_one():
    legal = set(config_as_dict(Config()))
    assert "algorithm" in RENAMED
    assert "algorithm" not in legal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "There is no run in .*: config.yaml is missing, check the folder"),
        ("a: [", "config.yaml is not YAML .*: mend it. Or delete the run's folder"),
        ("just text", "config.yaml holds no settings: delete the run's folder"),
        ("sed: 5", "does not fit this version of Karat: There is no setting 'sed'. Did you mean 'seed'.*Train again"),
    ],
)
def test_a_run_without_a_readable_config(text, message, tmp_path):
    if text is not None:
        (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        read_run_config(tmp_path)


def test_data_are_named_once(tmp_path):
    whole = tmp_path / "whole.yaml"
    whole.write_text(yaml.safe_dump(config_as_dict(Config())))
    assert from_command_line("mine.csv", "--config", str(whole)).data.name == "mine.csv"  # digits is nobody's choice
    assert from_command_line("wine", "--data.name", "wine").data.name == "wine"
    whole.write_text("data.name: wine")
    for arguments in (["mine.csv", "--data.name", "digits"], ["mine.csv", "--config", str(whole)]):
        with pytest.raises(
            UserError, match=r"The data are mine\.csv and, by data\.name, (digits|wine): name them once"
        ):
            from_command_line(*arguments)
