"""What a run says of its settings, its trusted examples and its steps."""

import logging
from collections.abc import Mapping

from karat.training.build import can_be_compiled, has_batch_norm
from karat.training.trainer import Trainer

logger = logging.getLogger("karat")


def of_passes(trainer: Trainer) -> list[str]:
    """Return what the settings of passes change in a run, a sentence each."""
    training, ranks, said = trainer.config.training, trainer.ranks, []
    if not has_batch_norm(trainer.model):
        return []
    if (training.pieces or 1) > 1:
        examples = trainer.batch_size / (training.pieces or 1)
        said.append(
            f"BatchNorm has the statistics of {examples:.0f} examples, not of the batch of {trainer.batch_size}: "
            "training.pieces: 1 saves less memory and changes nothing."
        )
    if ranks is not None and training.batch_norm == "own":
        said.append(
            f"BatchNorm has the statistics of {trainer.batch_size / ranks.count:.0f} examples, those of a process: "
            "with another number of processes the run is another one."
        )
    if training.compile and not can_be_compiled(trainer.model, training, ranks):
        said.append(
            "The network is not compiled: its BatchNorm has the statistics of all processes; training.batch_norm: own "
            "lets it be."
        )
    return said


def warn_of_drawn_trust(trainer: Trainer) -> None:
    """Say that trusted examples were drawn from own data, where nobody marked any."""
    if len(trainer.task.trusted) and not trainer.task.dataset.curated and trainer.task.dataset.trusted is None:
        logger.warning(
            "%d trusted examples of each class were drawn from the train labels, so these must be right: better mark "
            "the ones that you verified.",
            trainer.config.data.trusted_per_class,
        )


def warn_of_collapse(metrics: Mapping[str, float]) -> None:
    """Say that the meta step found no helpful example in most steps."""
    if metrics.get("collapsed_share", 0.0) > 0.5:
        logger.warning(
            "No noisy example helped the trusted ones in %.0f%% of the steps up to step %d, so all weights were 0: "
            "check the trusted labels, add more of them, or lower optimizer.rate.",
            100 * metrics["collapsed_share"],
            metrics["step"],
        )
