"""How accurate the models of a run are, at its end and again later."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import nn

from karat.data.task import NoisyTask
from karat.errors import UserError
from karat.files.json_files import read_json
from karat.files.required import fitting
from karat.inference.evaluation import Accuracy, evaluate
from karat.inference.model import load_model
from karat.settings.config import Config
from karat.settings.read import read_run_config
from karat.training.plan import with_chosen
from karat.training.run_checkpoint import CHECKPOINT, read_state, with_ledger
from karat.training.run_folder import chosen_settings
from karat.training.tasks import featured_task, task_of
from karat.training.trainer import Trainer

WEIGHTS = ("selected", "averaged", "raw", "validated")  # the models of a run, by name


def evaluate_run(config: Config, folder: Path) -> dict[str, Accuracy]:
    """Measure the model of a finished run on the test examples, or the weights in the checkpoint of an unfinished one.

    The other weights of a finished run have the accuracies that were measured at its end, where the model still has
    the one that it had then.
    """
    config = with_chosen(config, read_run_config(folder), chosen_settings(folder))
    task = task_of(config)
    state = read_state(folder, config, task)
    if state is None:
        raise UserError(f"{folder} has no checkpoint yet: let the run take its first steps.")
    if not len(task.dataset.test):
        raise UserError(
            f"The data of {folder} have no test examples: write karat evaluate {folder} DATA with labelled rows that "
            "were not trained on."
        )
    if not (folder / "results.json").exists():
        trainer = Trainer(config, task := featured_task(config))
        with fitting(folder / CHECKPOINT, "start a new run"):
            trainer.load_state_dict(with_ledger(folder, state)["trainer"])
        return accuracies(trainer.models(), task)
    test, model = task.dataset.test, load_model(folder, config.training.device)
    now = evaluate(model.module, test.inputs, test.labels)
    stored = read_json(folder / "results.json")
    with fitting(folder / "results.json"):
        then = {name: Accuracy(**stored[name]) for name in WEIGHTS if stored.get(name) is not None}
    same = "selected" in then and replace(then["selected"], loss=now.loss) == now  # the loss has other last digits
    return {**(then if same else {}), "selected": now}


def accuracies(models: Mapping[str, nn.Module], task: NoisyTask) -> dict[str, Accuracy]:
    """Measure models on the test examples, the same one under two names once; nothing where there are none."""
    test = task.dataset.test
    if not len(test):
        return {}
    measured = {model: evaluate(model, test.inputs, test.labels) for model in dict.fromkeys(models.values())}
    return {name: measured[model] for name, model in models.items()}
