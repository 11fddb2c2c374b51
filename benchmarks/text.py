"""Badly labelled texts: Karat against logistic regression, a linear SVM and cleanlab's pipeline on TF-IDF terms.

    python benchmarks/text.py [--rows 20000] [--noise "0% uniform" "40% uniform" ...]

The texts are the one-line descriptions of Debian's packages (`apt-cache dumpavail`, on a machine with Debian's package
lists), the labels their sections: the 20 largest, 10 trusted rows of each, noise on all others, 4,000 test rows.
All get the terms that Karat's encoder counts; Karat's seconds alone are with counting them. cleanlab drops the rows
that `find_label_issues` names by cross-validated predictions, and fits the others. Seconds are those of a processor.
"""

import argparse
import shutil
import subprocess
import time
from collections import Counter
from typing import Any

import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.svm import LinearSVC

from karat import KaratClassifier
from karat.data.text import fit_tfidf

CLASSES, TRUSTED, TEST = 20, 10, 4_000
NOISE = {
    "0% uniform": (0.0, False),
    "40% uniform": (0.4, False),
    "80% uniform": (0.8, False),
    "40% asymmetric": (0.4, True),
}


def descriptions() -> list[tuple[str, str]]:
    """Return description and section of every package, each description once."""
    command = [shutil.which("apt-cache") or "apt-cache", "dumpavail"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    for package in listed.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in package.splitlines() if ": " in line and line[0] != " ")
        if "Description" in fields and "Section" in fields:
            found.setdefault(fields["Description"], fields["Section"].split("/")[-1])
    return list(found.items())


def logistic(terms: Any, labels: np.ndarray) -> LogisticRegression:
    """Fit logistic regression."""
    return LogisticRegression(C=1.0, max_iter=100).fit(terms, labels)


def main() -> None:
    """Print one row for each method and noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", nargs="+", choices=NOISE, default=list(NOISE))
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    rows = descriptions()
    names = [name for name, _ in Counter(section for _, section in rows).most_common(CLASSES)]
    rows = [row for row in rows if row[1] in names]
    rows = [rows[place] for place in random.permutation(len(rows))[: options.rows + TEST]]
    texts, true = [text for text, _ in rows], np.array([names.index(section) for _, section in rows])
    train, test = slice(0, options.rows), slice(options.rows, None)
    began = time.process_time()
    terms = fit_tfidf(texts[train]).count(texts)
    print(f"{options.rows:,} rows, {terms.shape[1]:,} terms, counted in {time.process_time() - began:.0f} s")
    trusted = np.zeros(options.rows, bool)
    for label in range(CLASSES):
        trusted[np.flatnonzero(true[train] == label)[:TRUSTED]] = True
    print(f"{'noise':16}{'method':12}{'accuracy':>10}{'AUROC':>8}{'seconds':>9}")
    for noise in options.noise:
        rate, asymmetric = NOISE[noise]
        drawn = (true[train] + 1) % CLASSES if asymmetric else random.integers(0, CLASSES, options.rows)
        given = np.where((random.random(options.rows) < rate) & ~trusted, drawn, true[train])
        wrong = (given != true[train])[~trusted]

        def report(
            method: str,
            accuracy: float,
            quality: np.ndarray | None,
            began: float,
            noise: str = noise,
            wrong: np.ndarray = wrong,
        ) -> None:
            area = roc_auc_score(wrong, -quality) if quality is not None and wrong.any() else float("nan")
            print(f"{noise:16}{method:12}{accuracy:10.1%}{area:8.3f}{time.process_time() - began:9.0f}", flush=True)

        began = time.process_time()
        karat = KaratClassifier(random_state=options.seed).fit(texts[train], given, trusted=trusted)
        quality = karat.label_issues_.sort_values("index")["label_quality"].to_numpy()
        report("karat", (karat.predict(texts[test]) == true[test]).mean(), quality, began)
        began = time.process_time()
        report("logistic", logistic(terms[train], given).score(terms[test], true[test]), None, began)
        began = time.process_time()
        report("linear SVM", LinearSVC().fit(terms[train], given).score(terms[test], true[test]), None, began)
        began = time.process_time()
        guess = LogisticRegression(C=1.0, max_iter=100)
        predicted = cross_val_predict(guess, terms[train], given, cv=3, method="predict_proba")
        kept = ~find_label_issues(given, predicted) | trusted
        cleaned = logistic(terms[train][kept], given[kept])
        quality = get_label_quality_scores(given, predicted)[~trusted]
        report("cleanlab", cleaned.score(terms[test], true[test]), quality, began)


if __name__ == "__main__":
    main()
