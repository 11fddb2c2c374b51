"""Our predictions and scores in cleanlab, and its answers beside ours; docs/audit.md shows the same calls."""

import warnings

import numpy as np
import pytest
from records import made_up, uniform

from karat.audit.record import save_record
from karat.audit.run_audit import write_audit, write_pred_probs
from karat.files.safe_csv import read_safe_csv

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    find_label_issues = pytest.importorskip("cleanlab.filter").find_label_issues
    get_label_quality_scores = pytest.importorskip("cleanlab.rank").get_label_quality_scores


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    record, true = made_up(uniform(4, 0.3), examples=400)
    save_record(record, folder / "ledger.safetensors")
    write_audit(folder)
    write_pred_probs(folder, folder / "pred_probs.npy")
    wrong = (record.noisy.labels != true).numpy()
    issues = read_safe_csv(folder / "label_issues.csv").sort_values("index", ignore_index=True)
    labels = np.array([record.classes.index(label) for label in issues["given_label"]])
    return np.load(folder / "pred_probs.npy"), labels, issues, wrong


def test_the_predictions_are_what_cleanlab_takes(run):
    pred_probs, labels, issues, wrong = run
    assert pred_probs.shape == (len(labels), 4)
    np.testing.assert_allclose(pred_probs.sum(axis=1), 1)
    theirs = find_label_issues(labels, pred_probs, n_jobs=1)
    ours = issues["is_label_issue"].to_numpy()
    # 22% of the labels are wrong and the network is right in 97%: both find nearly all, and mostly the same ones.
    assert theirs[wrong].mean() > 0.9
    assert ours[wrong].mean() > 0.9
    assert (theirs == ours).mean() > 0.9


def test_scores_rank_alike(run):
    pred_probs, labels, issues, wrong = run
    theirs = get_label_quality_scores(labels, pred_probs)
    worst = wrong.sum() // 2
    ours = issues["label_quality"].to_numpy()
    assert wrong[np.argsort(theirs)[:worst]].mean() > 0.8
    assert wrong[np.argsort(ours)[:worst]].mean() > 0.8


def test_datalab_takes_them(run):
    datalab = pytest.importorskip("cleanlab.datalab.datalab", exc_type=ImportError)
    pytest.importorskip("datasets")
    pred_probs, labels, issues, _ = run
    lab = datalab.Datalab(data={"label": labels.tolist()}, label_name="label", verbosity=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lab.find_issues(pred_probs=pred_probs, issue_types={"label": {}})
    theirs = lab.get_issues("label")
    assert {"is_label_issue", "given_label", "predicted_label"} <= set(theirs.columns) & set(issues.columns)
    assert (theirs["is_label_issue"].to_numpy() == issues["is_label_issue"].to_numpy()).mean() > 0.9
