"""The examples that a config names, as a run sees them."""

from karat.data.task import NoisyTask, prepare_task
from karat.inference.device import compute_device
from karat.settings.config import Config
from karat.training.frozen import check_weights, data_of, featured
from karat.training.semantic_noise import semantic_labeller
from karat.training.terms import with_terms


def task_of(config: Config) -> NoisyTask:
    """Prepare the examples that a config names."""
    labeller = semantic_labeller(config.noise, config.seed, config.training.device)
    return with_terms(config, prepare_task(data_of(config), config.noise, config.seed, labeller))


def featured_task(config: Config, show: bool = True) -> NoisyTask:
    """Prepare the examples that a config names, as features where a pretrained network is asked for them."""
    check_weights(config)
    return featured(config, task_of(config), compute_device(config.training.device), show)
