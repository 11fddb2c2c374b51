"""Badly labelled images by the features of a pretrained network: Karat against what a practitioner does with them.

    python benchmarks/lite0_weights.py lite0.safetensors
    python benchmarks/pretrained.py CIFAR10_FOLDER lite0.safetensors --out results.jsonl [--seeds 0 1 2] [--noise ...]

10,000 train images of CIFAR-10 (the first 1,000 of each class in cifar10_train.parquet) and the first test images of
each class, enlarged to 192 pixels, become 1,280 features each, once; `--cache` keeps them. Ten labels of each class are
trusted, and there is noise on all others. All methods see the same features and labels:

- karat: `karat train --model timm:tf_efficientnet_lite0 --weights FILE`, after the features, with its audit;
- fine_tuned (where `--methods` names it: a pass takes a quarter of an hour of a core): the same with
  `--training.fine_tune 1`;
- logistic: the same linear head with the same strength, fitted to all labels; `trusted` to the trusted ones alone, with
  the strength that cross-validation chooses;
- knn: the most frequent label among the 25 nearest neighbours by cosine;
- cleanlab: predictions of the same head in five folds, rows that `find_label_issues` names dropped, fitted again; its
  AUROC is the best of its three scores;
- glc and trusted_finetune: Karat's own, a linear network on standardised features, trained for 20 epochs.

Accuracy is on the test images, AUROC that of finding wrong labels, ECE the expected calibration error of label_quality
(of cleanlab: of self_confidence) in ten bins. Semantic noise is what a small network trained on a tenth of the true
labels says. Rows are appended to the file as they come; what is in it is not computed again.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler, normalize

from karat import Config, KaratClassifier, make_task
from karat.audit.run_audit import audit
from karat.data.examples import Dataset, Examples
from karat.data.images import ImageFiles
from karat.data.settings import DataSettings, NoiseSettings
from karat.data.task import NoisyTask
from karat.inference.evaluation import predict_probabilities
from karat.methods.karat.classifier import SoftlyLabelled, fit_classifier
from karat.training.audit_record import audit_record
from karat.training.fine_tune import fine_tuned as tuned_network
from karat.training.fit import fit
from karat.training.frozen import featured, whole_model
from karat.training.semantic_noise import semantic_labeller
from karat.training.trainer import Trainer

CLASSES, SIZE, TRUSTED = 10, 192, 10
USUAL_CONFUSIONS = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}  # truck, bird, deer, cat, dog
NOISE = {
    "none": NoiseSettings(),
    "20% uniform": NoiseSettings("uniform", 0.2),
    "40% uniform": NoiseSettings("uniform", 0.4),
    "80% uniform": NoiseSettings("uniform", 0.8),
    "40% asymmetric": NoiseSettings("asymmetric", 0.4, class_map=USUAL_CONFUSIONS),
    "40% instance": NoiseSettings("instance", 0.4),
    "semantic": NoiseSettings("semantic", fraction=0.1, labeller="fast"),
}
QUICK = ["karat", "logistic", "trusted", "knn", "cleanlab", "glc", "trusted_finetune"]
Probabilities = Callable[[np.ndarray], np.ndarray]


def images_of(folder: Path, part: str, count: int) -> tuple[list[bytes], torch.Tensor]:
    """Return the encoded images of the first examples of each class, and their labels."""
    table = pd.read_parquet(folder / f"cifar10_{part}.parquet")
    kept = table.groupby("label").cumcount() < count // CLASSES
    return table["image"][kept].tolist(), torch.tensor(table["label"][kept].to_numpy(), dtype=torch.int64)


def task_of(folder: Path, noise: NoiseSettings, seed: int, test: int) -> NoisyTask:
    """Draw trusted examples and noise on images of 32 pixels; the task's own are decoded at 192."""
    (train, labels), (tested, test_labels) = images_of(folder, "train", 10_000), images_of(folder, "test", test)
    small, large = ImageFiles(train, 32), ImageFiles(train + tested, SIZE)
    dataset = Dataset(
        "cifar10",
        Examples(small[torch.arange(len(small))], labels),
        Examples(large.subset(slice(len(train), None)), test_labels),
        tuple(map(str, range(CLASSES))),
        flip=False,
        rows=torch.arange(len(train)),
    )
    labeller = semantic_labeller(noise, seed, "cpu")
    task = make_task(dataset, DataSettings(trusted_per_class=TRUSTED), noise, seed, labeller)
    whole = replace(dataset, train=Examples(large.subset(slice(0, len(train))), labels))
    return replace(
        task,
        dataset=whole,
        noisy=Examples(large.subset(task.noisy_rows), task.noisy.labels),
        trusted=Examples(large.subset(task.trusted_rows), task.trusted.labels),
    )


def head(features: np.ndarray, labels: np.ndarray) -> Probabilities:
    """Fit Karat's own linear head to labels."""
    targets = torch.eye(CLASSES)[torch.from_numpy(labels)]
    weight, bias = fit_classifier([SoftlyLabelled(torch.from_numpy(features).__getitem__, targets)], False)
    return lambda new: (torch.from_numpy(new) @ weight.T + bias).softmax(dim=1).numpy()


def ranked(task: NoisyTask, quality: np.ndarray) -> dict[str, float]:
    """Compare a quality of each given label with the truth."""
    wrong = task.mislabelled
    assert wrong is not None
    right = (~wrong).numpy()
    found = {"auroc": 0.0} if right.all() else {"auroc": float(roc_auc_score(right, quality))}
    bins = np.minimum((quality * 10).astype(int), 9)
    gaps = [abs(quality[bins == one].mean() - right[bins == one].mean()) * (bins == one).mean() for one in set(bins)]
    return {**found, "ece": float(sum(gaps))}


def karat(task: NoisyTask, seed: int) -> dict[str, Any]:
    """Judge, fit and audit, as `karat train` does after the features."""
    trainer = Trainer(Config(seed=seed), task)
    fit(trainer, evaluate=False)
    finished = trainer.finished_models("selected")["selected"]
    found = audit(audit_record(trainer, finished))
    quality = found.issues.sort_values("index")["label_quality"].to_numpy()
    test = task.dataset.test
    predicted = predict_probabilities(finished.model, test.inputs).argmax(dim=1)
    rate = {"rate": found.estimate.rate, "low": found.estimate.low, "high": found.estimate.high}
    return {"accuracy": (predicted == test.labels).double().mean().item(), **ranked(task, quality), **rate}


def fine_tuned(task: NoisyTask, settings: Config, seed: int) -> dict[str, Any]:
    """Judge and fit, then let the whole network learn the verdict for one pass."""
    training = replace(settings.training, fine_tune=1)
    trainer = Trainer(replace(settings, seed=seed, training=training), task)
    fit(trainer, evaluate=False)
    finished = trainer.finished_models("selected")["selected"]
    assert finished.judgement is not None
    posterior = finished.judgement.posterior
    model = whole_model(
        task, finished.model, lambda network: tuned_network(network, task, posterior, trainer.config, trainer.device)
    )
    test = task.seen.dataset.test
    predicted = predict_probabilities(model, test.inputs).argmax(dim=1)
    return {"accuracy": (predicted == test.labels).double().mean().item()}


def methods(task: NoisyTask, seed: int, settings: Config) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return Karat and the methods that it is compared with, by name."""
    whole, task = task, replace(task, origin=None)  # the head alone is measured
    parts = task.noisy, task.trusted, task.dataset.test
    noisy, trusted, test = (part.inputs[torch.arange(len(part))].numpy() for part in parts)
    given, verified, true = (part.labels.numpy() for part in parts)
    features, labels = np.concatenate([noisy, trusted]), np.concatenate([given, verified])

    def measured(predict: Probabilities) -> dict[str, Any]:
        return {"accuracy": float((predict(test).argmax(axis=1) == true).mean())}

    def of_trusted() -> dict[str, Any]:
        scaled = normalize(trusted)
        chosen = LogisticRegressionCV(Cs=np.logspace(-2, 4, 7), cv=5, max_iter=300, l1_ratios=(0.0,))
        chosen.fit(scaled, verified)
        return measured(lambda new: chosen.predict_proba(normalize(new)))

    def knn() -> dict[str, Any]:
        near = KNeighborsClassifier(25, metric="cosine", algorithm="brute").fit(features, labels)
        return measured(near.predict_proba)

    def cleanlab() -> dict[str, Any]:
        predicted = np.zeros((len(labels), CLASSES))
        for seen, unseen in StratifiedKFold(5, shuffle=True, random_state=seed).split(features, labels):
            predicted[unseen] = head(features[seen], labels[seen])(features[unseen])
        issues = find_label_issues(labels, predicted, n_jobs=1)
        qualities = {
            name: get_label_quality_scores(labels, predicted, method=name, adjust_pred_probs=False)[: len(given)]
            for name in ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
        }
        scores = {name: ranked(task, quality) for name, quality in qualities.items()}
        best = max(score["auroc"] for score in scores.values())
        ranking = {"auroc": best, "ece": scores["self_confidence"]["ece"]}
        return {**measured(head(features[~issues], labels[~issues])), **ranking}

    def trained(method: str) -> dict[str, Any]:
        scaler = StandardScaler().fit(features)
        mask = np.arange(len(labels)) >= len(given)
        model = KaratClassifier(method, "linear", epochs=20, learning_rate=0.01, random_state=seed)
        model.fit(scaler.transform(features), labels, trusted=mask)
        return measured(lambda new: model.predict_proba(scaler.transform(new)))

    return {
        "karat": lambda: karat(task, seed),
        "fine_tuned": lambda: fine_tuned(whole, settings, seed),
        "logistic": lambda: measured(head(features, labels)),
        "trusted": of_trusted,
        "knn": knn,
        "cleanlab": cleanlab,
        "glc": lambda: trained("glc"),
        "trusted_finetune": lambda: trained("trusted_finetune"),
    }


def main() -> None:
    """Append one line for each method, noise and seed; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cifar10", type=Path, help="Folder with cifar10_train.parquet and cifar10_test.parquet.")
    parser.add_argument("weights", type=Path, help="What benchmarks/lite0_weights.py wrote.")
    parser.add_argument("--out", type=Path, default=Path("pretrained.jsonl"))
    parser.add_argument("--cache", type=Path, default=None, help="Folder for the features.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--test", type=int, default=4_000)
    parser.add_argument("--noise", nargs="+", choices=NOISE, default=list(NOISE))
    parser.add_argument("--methods", nargs="+", default=QUICK)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(row["noise"], row["seed"], row["method"]) for row in rows}
    settings = Config(
        model="timm:tf_efficientnet_lite0", weights=options.weights, data=DataSettings(cache=options.cache)
    )
    for seed in options.seeds:
        for noise in options.noise:
            task = featured(settings, task_of(options.cifar10, NOISE[noise], seed, options.test), torch.device("cpu"))
            for name, run in methods(task, seed, settings).items():
                if (noise, seed, name) in done or name not in options.methods:
                    continue
                began, processor = time.perf_counter(), time.process_time()
                found = run()
                seconds = {"seconds": time.perf_counter() - began, "processor": time.process_time() - processor}
                row = {"noise": noise, "seed": seed, "method": name, "wrong": task.labels.rate, **found, **seconds}
                rows.append(row)
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print({key: round(x, 3) if isinstance(x, float) else x for key, x in row.items()}, flush=True)
    table = pd.DataFrame(rows)
    for column in table.columns.intersection(["accuracy", "auroc", "ece", "processor"], sort=False):
        means = table.pivot_table(index="noise", columns="method", values=column, aggfunc=["mean", "std"])
        print(f"\n{column}\n{means.round(3).to_string()}")


if __name__ == "__main__":
    main()
