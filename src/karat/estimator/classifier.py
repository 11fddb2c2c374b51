"""`KaratClassifier`: training and audit behind scikit-learn's `fit` and `predict`."""

import math
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from karat.audit.run_audit import Audit, audit
from karat.data.settings import DataForNetwork
from karat.data.sources.memory import from_memory
from karat.data.task import NoisyTask, make_task
from karat.errors import UserError
from karat.estimator.inputs import (
    Array,
    checked_labels,
    class_numbers,
    trusted_mask,
    trusted_pair,
    validated,
)
from karat.inference.device import compute_device
from karat.inference.evaluation import predict_probabilities
from karat.models import build_model
from karat.progress_bar import ProgressBar
from karat.settings.config import Config, flat
from karat.training.audit_record import audit_record
from karat.training.fit import BarListener, fit
from karat.training.frozen import data_of, featured, whole_model
from karat.training.plan import default_batch_size
from karat.training.terms import with_terms
from karat.training.trainer import Trainer
from karat.training.unread import unread_settings

DEFAULT_METHOD = "karat"
_ARGUMENTS = ("method", "model", "seed", "training.device")  # settings of a run that are arguments here
# A fit leaves threads to torch, writes no checkpoint and is one process.
_OF_RUNS = (
    "training.threads",
    "training.checkpoint_every",
    "training.devices",
    "training.nodes",
    "training.batch_norm",
)
LABEL_COLUMNS = ("given_label", "predicted_label", "suggested_label", "helpful_label", "cleaned_label")
Model = str | nn.Module | Callable[[tuple[int, ...], int], nn.Module]


class NoTrustedLabelsWarning(UserWarning):
    """No trusted labels were given, so that nothing confirms what is said of the labels."""


class LabelAuditWarning(UserWarning):
    """What the audit of a fit found to worry about: `warnings_` has the same sentences."""


def default_epochs(batches: int) -> int:
    """Return how many passes a fit makes: 30, fewer where that is more than 2,000 steps, but 5 at least.

    That is less than `karat train` takes (training/plan.py): a fit is often one of many in a search.

    >>> [default_epochs(batches) for batches in (6, 200, 5_000)]
    [30, 10, 5]
    """
    return max(5, min(30, math.ceil(2_000 / batches)))


class KaratClassifier(ClassifierMixin, BaseEstimator):
    """A classifier for badly labelled data with a few trusted labels; it also says which labels are wrong.

    Parameters:
        method: how to learn; docs/methods.md lists the names.
        model: "auto", the name of a network (docs/networks.md), an `nn.Module` (copied, never changed) or a function of
            (shape, classes) that makes one. A module takes float32 (N, inputs) or (N, channels, height, width) and
            returns logits.
        epochs: passes over the noisy rows; None: 30, fewer from 2,000 steps on, 5 at least.
        batch_size: noisy rows in a step; None: 100, fewer (20 at least) for small data.
        learning_rate: the highest rate of the cosine schedule; None: 0.1.
        weight_decay: of the optimizer; None: 0.0005.
        settings: any other settings by their names in a config file, such as {"optimizer.name": "adamw"}; the
            arguments above count more.
        random_state: a seed, a RandomState, or None.
        device: "auto", "cpu" or "cuda".
        verbose: 1 shows a progress bar.

    After `fit`: `classes_`, `n_features_in_`, `feature_names_in_`, `n_iter_` (epochs), `label_issues_` and
    `cleaned_labels_` (DataFrames, docs/estimator.md), `noise_rate_`, `noise_interval_`, `warnings_` (sentences, each
    also a LabelAuditWarning), `trusted_rows_`, `network_`.

    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> trusted = np.arange(len(y)) % 9 == 0  # these labels were verified
    >>> classifier = KaratClassifier(epochs=10, random_state=0).fit(X, y, trusted=trusted)
    >>> bool(classifier.score(X, y) > 0.9), len(classifier.label_issues_), len(classifier.trusted_rows_)
    (True, 158, 20)
    """

    def __init__(
        self,
        method: str = DEFAULT_METHOD,
        model: Model = "auto",
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: Any = None,
        device: Any = "auto",
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.settings = settings
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any, trusted: Any = None) -> "KaratClassifier":
        """Learn from noisy labels with the help of trusted ones.

        X are vectors (N, F), images (N, H, W[, C]), a list of texts or of image files (paths), or a DataFrame with
        numeric and categorical columns. `trusted` is a boolean mask of the rows whose labels were verified, indices, or
        a pair (X_trusted, y_trusted) of further rows. Without it labels count as right more often than wrong in any one
        way, with a NoTrustedLabelsWarning.
        """
        names = tuple(str(name) for name in X.index) if isinstance(X, pd.DataFrame) else None
        X, y = validated(self, X, reset=True), checked_labels(y)
        check_consistent_length(X, y)
        are_files = isinstance(X, list) and isinstance(X[0], Path)
        names = tuple(map(str, X)) if are_files else names
        pair = trusted_pair(trusted)
        if pair is None:
            self.classes_, (labels,) = class_numbers(y)
        else:
            further, further_y = validated(self, pair[0], reset=False), checked_labels(pair[1])
            check_consistent_length(further, further_y)
            self.classes_, parts = class_numbers(y, further_y)
            names = None if names is None else (*names, *[f"trusted {row}" for row in range(len(further_y))])
            labels, trusted = torch.cat(parts), np.arange(len(y), len(y) + len(further_y))
            both: Any = [X, further]
            if isinstance(X, list):
                X = [*X, *further]
            else:
                X = pd.concat(both) if isinstance(X, pd.DataFrame) else np.concatenate(both)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        mask = torch.zeros(len(labels), dtype=torch.bool) if trusted is None else trusted_mask(trusted, len(labels))
        if not mask.any():
            warnings.warn(
                "No label is trusted: labels count as right more often than wrong in any one way, and nothing confirms "
                "what is said of them. Verify some labels and pass trusted=mask.",
                NoTrustedLabelsWarning,
                stacklevel=2,
            )
        if len(mask) - int(mask.sum()) < 2:
            raise UserError(
                f"{int(mask.sum())} of n_samples = {len(mask)} are trusted: at least 2 must be left to be learned from."
            )
        written = tuple(str(name) for name in self.classes_)
        texts = [written[number] for number in labels.tolist()]
        size = self._photographs() if are_files else None
        dataset = from_memory(X, texts, mask.numpy(), classes=written, names=names, name="X", photographs=size)
        task = make_task(dataset)
        config = self._config(task, seed)
        task = with_terms(config, task)
        assert task.dataset.schema is not None
        self._schema = task.dataset.schema
        task = featured(config, task, compute_device(self.device), show=bool(self.verbose))
        trainer = self._trained(config, task)
        finished = trainer.finished_models("selected")["selected"]
        self._keep(audit(audit_record(trainer, finished), settings=trainer.config.audit), rows=len(y))
        self.network_ = whole_model(
            task, finished.model
        ).cpu()  # only now: the audit reads the inputs where the trainer has them
        self.n_iter_ = math.ceil(trainer.steps_done / trainer.steps_per_epoch)
        self.trusted_rows_ = mask.nonzero().flatten().numpy()
        for sentence in self.warnings_:
            warnings.warn(sentence, LabelAuditWarning, stacklevel=2)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class in `classes_`, row by row."""
        check_is_fitted(self)
        inputs = self._schema.inputs_of(validated(self, X, reset=False))
        probabilities = predict_probabilities(self.network_, inputs).double()
        return (probabilities / probabilities.sum(dim=1, keepdim=True)).numpy()

    def predict(self, X: Any) -> Array:
        """Return the likeliest class of each row, as the labels were written."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def _trained(self, config: Config, task: NoisyTask) -> Trainer:
        """Take all steps, from a random state of their own."""
        with torch.random.fork_rng():
            trainer = Trainer(config, task, build=self._build)
            alike = trainer.method.partners_begin_alike
            if isinstance(self.model, nn.Module) and trainer.method.partners and not alike:
                raise UserError(
                    f"{self.method} needs networks that begin differently, and copies of one module are alike: give "
                    "model as a function of (shape, classes) that makes a new one."
                )
            if self.verbose:
                with ProgressBar(self.method, trainer.total_steps) as bar:
                    fit(trainer, BarListener(bar))
            else:
                fit(trainer)
        return trainer

    def _photographs(self) -> int | None:
        """Return the size that a pretrained network wants image files at; None: they have their own."""
        from karat.settings.read import read_config

        model = self.model if isinstance(self.model, str) else "small"  # a module has no pretrained weights to fetch
        data = data_of(replace(read_config(self.settings or {}), method=self.method, model=model))
        return data.photographs if isinstance(data, DataForNetwork) else None

    def _config(self, task: NoisyTask, seed: int) -> Config:
        config, rows = Config(), len(task.noisy)
        if self.settings:
            from karat.settings.read import read_config  # takes longer than a small fit; most do without

            names = flat(dict(self.settings))
            refused = [name for name in names if name in _ARGUMENTS or name.startswith(("data.", "noise."))]
            if refused:
                raise UserError(
                    f"settings has {', '.join(refused)}: leave it out, since method, model, random_state, device and "
                    "the data are arguments of their own."
                )
            config = read_config(self.settings)
            unread = [name for name in names if name in _OF_RUNS]
            if unread:
                warnings.warn(f"A fit does not read {', '.join(unread)}: leave it out.", UserWarning, stacklevel=3)
        training = replace(config.training, device=self.device)
        if self.batch_size is not None:
            training = replace(training, batch_size=self.batch_size)
        if self.epochs is not None:
            training = replace(training, epochs=self.epochs, steps=None)
        batch_size = min(training.batch_size or default_batch_size(rows), rows)
        training = replace(training, batch_size=batch_size)
        if training.epochs is None and training.steps is None:
            training = replace(training, epochs=default_epochs(math.ceil(rows / batch_size)))
        optimizer = config.optimizer
        if self.learning_rate is not None:
            optimizer = replace(optimizer, rate=self.learning_rate)
        if self.weight_decay is not None:
            optimizer = replace(optimizer, weight_decay=self.weight_decay)
        model = self.model if isinstance(self.model, str) else type(self.model).__name__
        config = replace(config, method=self.method, model=model, seed=seed, optimizer=optimizer, training=training)
        for sentence in unread_settings(config, task.dataset):
            warnings.warn(sentence, UserWarning, stacklevel=3)
        return config

    def _build(self, name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
        if isinstance(self.model, str):
            return build_model(name, shape, classes)
        if isinstance(self.model, nn.Module):
            return deepcopy(self.model)
        if not callable(self.model):
            raise UserError(f"model is {self.model!r}: give a name, an nn.Module, or a function of (shape, classes).")
        return self.model(shape, classes)

    def _keep(self, found: Audit, rows: int) -> None:
        """Keep what the audit found about the rows of X, with labels as the user wrote them; None where none is."""
        written = dict(zip(found.estimate.classes, self.classes_, strict=True))
        tables = []
        for table in (found.issues, found.cleaned):
            columns = {
                name: np.array([*map(written.get, table[name]), None], dtype=object)[:-1]
                for name in LABEL_COLUMNS
                if name in table
            }
            tables.append(table.assign(**columns)[table["index"] < rows].reset_index(drop=True))
        self.label_issues_, self.cleaned_labels_ = tables
        self.noise_rate_ = found.estimate.rate
        self.noise_interval_ = (found.estimate.low, found.estimate.high)
        self.warnings_ = found.estimate.warnings
