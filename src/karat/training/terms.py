"""What a model sees of texts: all of their terms where it is fitted, the strongest directions where it is trained."""

from collections.abc import Callable
from dataclasses import replace

from karat.data.examples import Examples
from karat.data.images import Inputs
from karat.data.task import NoisyTask
from karat.data.text import TfidfEncoder
from karat.data.text_rows import TextRows
from karat.models import LINEAR
from karat.settings.config import Config
from karat.training.plan import FITTING

MOST_NUMBERS = 10_000_000  # of a classifier of all terms: L-BFGS keeps twenty copies of it


def with_terms(config: Config, task: NoisyTask) -> NoisyTask:
    """Return texts as the model of this config sees them; all other tasks as they are."""
    schema = task.dataset.schema
    if schema is None or not isinstance(schema.encoder, TfidfEncoder):
        return task
    terms = replace(schema.encoder, directions=None)
    fitted = config.method == FITTING and config.model in ("auto", LINEAR)
    if not fitted or terms.width * len(task.dataset.classes) > MOST_NUMBERS:
        return _seen(task, lambda texts: texts.vectors(slice(None)))
    task = _seen(task, TextRows.widened)
    return replace(task, dataset=replace(task.dataset, schema=replace(schema, shape=(terms.width,), encoder=terms)))


def _seen(task: NoisyTask, see: Callable[[TextRows], Inputs]) -> NoisyTask:
    def part(examples: Examples) -> Examples:
        return replace(examples, inputs=see(examples.inputs))

    return replace(
        task,
        dataset=replace(task.dataset, train=part(task.dataset.train), test=part(task.dataset.test)),
        noisy=part(task.noisy),
        trusted=part(task.trusted),
        validation=None if task.validation is None else part(task.validation),
    )
