"""Embeddings as vectors of a user: with their own scale where unseen labels speak for it, against standardised columns.

    python benchmarks/embeddings.py [--rows 5000] [--rates 0 0.4 0.8 0.9]

The embeddings are the 768 TF-IDF directions of Debian's one-line descriptions (as in text.py), handed over as an array
of numbers; 20 sections, 10 trusted rows of each, uniform noise on all others, 4,000 test rows.
"""

import argparse
import time
import warnings
from collections import Counter
from unittest.mock import patch

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from karat import KaratClassifier
from karat.data.text import fit_tfidf
from karat.methods.karat.own_scale import own_scale
from text import CLASSES, TEST, TRUSTED, descriptions


def main() -> None:
    """Print a row for each rate and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0, 0.4, 0.8, 0.9])
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    random, rows = np.random.default_rng(0), descriptions()
    names = [name for name, _ in Counter(section for _, section in rows).most_common(CLASSES)]
    rows = [row for row in rows if row[1] in names]
    rows = [rows[place] for place in random.permutation(len(rows))[: options.rows + TEST]]
    texts, true = [text for text, _ in rows], np.array([names.index(section) for _, section in rows])
    vectors = fit_tfidf(texts[: options.rows]).encode(texts)[:].numpy()
    learned, known = vectors[: options.rows], true[: options.rows]
    trusted = np.zeros(options.rows, bool)
    for label in range(CLASSES):
        trusted[np.flatnonzero(known == label)[:TRUSTED]] = True
    print(f"{'noise':8}{'columns':16}{'accuracy':>10}{'AUROC':>8}{'found':>8}{'seconds':>9}")
    for rate in options.rates:
        redrawn = (random.random(options.rows) < rate) & ~trusted
        given = np.where(redrawn, random.integers(0, CLASSES, options.rows), known)
        wrong = (given != known)[~trusted]
        for way in ("as chosen", "standardised"):
            began = time.process_time()
            chosen = {"side_effect": own_scale} if way == "as chosen" else {"return_value": None}
            with patch("karat.methods.karat.method.own_scale", **chosen):
                model = KaratClassifier(random_state=0).fit(learned, given, trusted=trusted)
            quality = model.label_issues_.sort_values("index")["label_quality"].to_numpy()
            area = roc_auc_score(wrong, -quality) if wrong.any() else float("nan")
            accuracy = (model.predict(vectors[options.rows :]) == true[options.rows :]).mean()
            seconds = time.process_time() - began
            print(f"{rate:<8.0%}{way:16}{accuracy:10.1%}{area:8.3f}{model.noise_rate_:8.1%}{seconds:9.0f}", flush=True)


if __name__ == "__main__":
    main()
