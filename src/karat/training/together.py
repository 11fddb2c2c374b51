"""What processes do beside the first one, which writes the run's folder: the same steps, on the same data."""

from collections.abc import Callable

import torch

from karat.algorithm.ranks import Ranks
from karat.errors import Stopped, UserError
from karat.inference.device import compute_device, make_deterministic
from karat.settings.config import Config
from karat.training.environment import versions
from karat.training.fit import fit
from karat.training.signals import asked_to_stop
from karat.training.tasks import featured_task
from karat.training.trainer import Diverged, Trainer


def set_up_torch(config: Config) -> None:
    """Give torch the threads and the algorithms that a config asks for."""
    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
    if config.training.deterministic:
        make_deterministic(compute_device(config.training.device))


def take_steps_along(config: Config, ranks: Ranks) -> None:
    """Take the steps of a run whose folder the first process writes."""
    set_up_torch(config)
    config = ranks.from_first(lambda: config)
    ranks.from_first(lambda: None)
    trainer = Trainer(config, featured_task(config, show=False), ranks=ranks)  # the first one has kept the features
    check_same_data(trainer, ranks)
    while not _steps_taken(trainer, ranks):
        pass


def _steps_taken(trainer: Trainer, ranks: Ranks) -> bool:
    """Take the steps that are left; return False where the loss was not finite and the run goes back."""
    trainer.load_state_dict(ranks.from_first(trainer.shared_state))
    try:
        with asked_to_stop(lambda sentence: None) as asked:
            done = fit(trainer, stop=lambda: signal_of_all(asked, ranks) > 0)
    except Diverged:
        return False  # the first process goes back, or says that this does not help
    if not done:
        raise Stopped(signal_of_all(asked, ranks))
    return True


def signal_of_all(asked: Callable[[], int], ranks: Ranks | None) -> int:
    """Return the signal that asked one of the processes to stop; 0 where nobody was asked."""
    return asked() if ranks is None else ranks.highest(asked())


def check_same_data(trainer: Trainer, ranks: Ranks) -> None:
    """Refuse processes that read other data or have other software than the first one."""
    seen = ranks.all_values((trainer.task.fingerprint(), versions()))
    for rank, (data, software) in enumerate(seen):
        if data != seen[0][0]:
            raise UserError(
                f"Process {rank} reads other data than the first process from {trainer.config.data.name}: "
                "give every machine the same files."
            )
        if software != seen[0][1]:
            raise UserError(
                f"Process {rank} has {software} and the first process {seen[0][1]}: install the same versions."
            )
