"""KaratClassifier keeps scikit-learn's conventions, uses the trusted labels, and finds the wrong ones."""

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine, make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from torch import nn

import karat
from karat import KaratClassifier, LabelAuditWarning
from karat.errors import UserError
from karat.estimator import NoTrustedLabelsWarning

# Checks of scikit-learn that fail, each with the reason; docs/estimator.md has the same list.
EXCEPTIONS: dict[str, str] = {}


def blobs(rows=120, classes=3, wrong=0.4, seed=0):
    """Return well separated clusters, labels of which this share is wrong, the true ones, and ten trusted a class."""
    X, true = make_blobs(rows, centers=classes, cluster_std=1.0, center_box=(-8, 8), random_state=3)
    draw = np.random.default_rng(seed)
    trusted = np.concatenate([draw.permutation(np.flatnonzero(true == c))[:10] for c in range(classes)])
    moved = np.flatnonzero(~np.isin(np.arange(rows), trusted))
    moved = draw.permutation(moved)[: round(wrong * len(moved))]
    given = true.copy()
    given[moved] = (true[moved] + draw.integers(1, classes, len(moved))) % classes
    return X, given, true, np.isin(np.arange(rows), trusted)


pytestmark = pytest.mark.filterwarnings("ignore::karat.LabelAuditWarning")


def quick(**options):
    return KaratClassifier(**{"epochs": 8, "random_state": 0, "device": "cpu", **options})


@pytest.fixture(scope="module")
def fitted():
    X, given, _, mask = blobs()
    return quick(epochs=15).fit(X, given, trusted=mask)


@pytest.mark.filterwarnings(
    "ignore::karat.estimator.NoTrustedLabelsWarning", "ignore::sklearn.exceptions.SkipTestWarning"
)
def test_scikit_learns_own_checks():
    estimator = KaratClassifier(epochs=4, device="cpu")
    if "expected_failed_checks" in inspect.signature(estimator_checks.check_estimator).parameters:
        results = estimator_checks.check_estimator(
            estimator, expected_failed_checks=EXCEPTIONS, on_skip=None, on_fail=None
        )
        failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
        assert not failed
        assert len(results) > 40
    else:  # scikit-learn before 1.6
        for copy, check in estimator_checks.check_estimator(estimator, generate_only=True):
            if check.func.__name__ not in EXCEPTIONS:
                check(copy)


def test_what_the_audit_worries_about_is_warned_of():
    """One trusted row a class is too few for any estimate, and the fit says so as `karat audit` would."""
    X, given, true, _ = blobs()
    few = [int(np.flatnonzero(given == label)[0]) for label in np.unique(given)]
    with pytest.warns(LabelAuditWarning, match="Fewer than 5 trusted examples") as caught:
        classifier = quick(epochs=1).fit(X, np.where(np.isin(np.arange(len(X)), few), true, given), trusted=few)
    assert [str(one.message) for one in caught if one.category is LabelAuditWarning] == list(classifier.warnings_)
    assert {one.filename for one in caught if one.category is LabelAuditWarning} == {__file__}


def test_trusted_labels_decide_where_most_others_are_wrong():
    """At 70% wrong every class has more wrong labels than right ones: only the trusted ones can tell."""
    X, given, true, mask = blobs(rows=180, wrong=0.7)
    classifier = quick(epochs=20).fit(X, given, trusted=mask)
    assert (given == true)[~mask].mean() == pytest.approx(0.3, abs=0.01)
    assert classifier.score(X, true) > 0.9


def test_wrong_labels_come_first_in_the_issues(fitted):
    _, given, true, mask = blobs()
    issues = fitted.label_issues_
    assert sorted(issues["index"]) == np.flatnonzero(~mask).tolist()
    assert issues["given_label"].tolist() == given[issues["index"]].tolist()
    wrong = (given != true)[issues["index"]]
    assert wrong[: wrong.sum()].mean() > 0.9
    assert (issues["suggested_label"][wrong] == true[issues["index"]][wrong]).mean() > 0.85
    assert issues["suggested_label"][~issues["is_label_issue"]].isna().all()
    assert fitted.noise_rate_ == pytest.approx(wrong.mean(), abs=0.1)
    assert fitted.noise_interval_[0] <= fitted.noise_rate_ <= fitted.noise_interval_[1]
    cleaned = fitted.cleaned_labels_
    assert cleaned["index"].tolist() == list(range(len(given)))
    assert (cleaned["action"] == "trusted").to_numpy().tolist() == mask.tolist()


def test_mask_indices_and_list_name_the_same_rows():
    X, given, _, mask = blobs(rows=60)
    forms = (mask, np.flatnonzero(mask), pd.Series(mask).astype("boolean"), mask.tolist())
    results = [quick(epochs=2).fit(X, given, trusted=form).predict_proba(X) for form in forms]
    for result in results[1:]:
        assert np.array_equal(result, results[0])


def test_a_pair_adds_rows():
    X, given, true, mask = blobs()
    classifier = quick(epochs=12).fit(X[~mask], given[~mask], trusted=(X[mask], true[mask]))
    assert classifier.score(X, true) > 0.9
    assert classifier.trusted_rows_.tolist() == list(range((~mask).sum(), len(X)))
    assert classifier.cleaned_labels_["index"].tolist() == list(range((~mask).sum()))


def test_a_class_of_the_trusted_pair_alone_is_a_class():
    X, given, true, mask = blobs(rows=90)
    rows = (given != 2) & ~mask
    classifier = quick(epochs=2).fit(X[rows], given[rows], trusted=(X[mask], true[mask]))
    assert classifier.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("trusted", [None, np.zeros(300, bool)])
def test_without_trusted_labels_most_are_believed_and_it_says_so(trusted):
    X, given, true, _ = blobs()
    with pytest.warns(NoTrustedLabelsWarning, match="pass trusted=mask"):
        classifier = quick().fit(X, given, trusted=None if trusted is None else trusted[: len(X)])
    assert len(classifier.trusted_rows_) == 0
    assert classifier.score(X, true) > 0.9


def test_methods_that_need_trusted_labels_ask_for_them():
    X, given, _, _ = blobs(rows=90)
    with pytest.warns(NoTrustedLabelsWarning), pytest.raises(UserError, match="Method l2r needs trusted examples"):
        quick(method="l2r").fit(X, given)


def test_labels_stay_as_they_were_written():
    X, given, true, mask = blobs(rows=90)
    names = np.array(["eel", "Zebra", "ant"])
    classifier = quick(epochs=12).fit(X, names[given], trusted=mask)
    assert classifier.classes_.tolist() == ["Zebra", "ant", "eel"]
    assert set(classifier.predict(X)) <= set(names)
    assert classifier.score(X, names[true]) > 0.9
    assert set(classifier.label_issues_["given_label"]) <= set(names)


def test_a_table_with_categories(recwarn):
    """The category alone tells the classes apart: read as a number or dropped it could not be learned."""
    draw = np.random.default_rng(0)
    town = draw.choice(["Bonn", "Oslo", "Rome"], 150)
    X = pd.DataFrame({"size": draw.normal(size=150), "town": pd.Categorical(town)}, index=[f"r{i}" for i in range(150)])
    y = np.where(town == "Oslo", "cold", "warm")
    classifier = quick(epochs=15).fit(X, y, trusted=np.arange(0, 150, 5))
    assert classifier.score(X, y) > 0.95
    assert classifier.feature_names_in_.tolist() == ["size", "town"]
    assert set(classifier.label_issues_["id"]) == {f"r{i}" for i in range(150) if i % 5}
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(X.rename(columns={"town": "city"}))


def test_images():
    digits = load_digits()
    images, y = digits.images[:200] / 16, digits.target[:200]
    mask = np.arange(200) % 2 == 0
    classifier = quick(epochs=2, model="mlp").fit(images, y, trusted=mask)
    assert classifier.predict_proba(images[:3]).shape == (3, 10)
    colour = np.repeat((images * 255).astype(np.uint8)[..., None], 3, axis=3)
    assert quick(epochs=1, model="mlp").fit(colour, y, trusted=mask).score(colour, y) > 0.1


def test_one_image_under_two_trusted_labels_is_refused():
    images, y = load_digits().images[:40] / 16, np.resize([0, 1], 40)
    images[1] = images[0]
    with pytest.raises(UserError, match=r"X: 1 image is trusted under two labels \(row 0 as '0' = row 1 as '1'\)"):
        quick(epochs=1).fit(images, y, trusted=np.arange(40) < 4)


def network(shape, classes):
    return nn.Sequential(nn.Linear(shape[0], 16), nn.ReLU(), nn.Linear(16, classes))


def test_own_networks():
    X, given, true, mask = blobs()
    from_function = quick(model=network, epochs=15).fit(X, given, trusted=mask)
    assert isinstance(from_function.network_.network[0], nn.Linear)
    assert from_function.score(X, true) > 0.9
    own = network((2,), 3)
    before = [parameter.clone() for parameter in own.parameters()]
    from_module = quick(model=own).fit(X, given, trusted=mask)
    assert all(torch.equal(a, b) for a, b in zip(before, own.parameters(), strict=True))
    assert not torch.equal(from_module.network_.network[0].weight, own[0].weight)
    assert isinstance(clone(from_module).model, nn.Module)


def test_same_seed_same_result_and_no_trace_of_it():
    X, given, _, mask = blobs(rows=60)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - the global state is the point
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    threads = torch.get_num_threads()
    first, second, other = (quick(epochs=2, random_state=seed).fit(X, given, trusted=mask) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert torch.get_num_threads() == threads
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))
    pd.testing.assert_frame_equal(first.label_issues_, second.label_issues_)


def test_nothing_is_printed_or_written(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    X, given, _, mask = blobs(rows=60)
    quick(epochs=1).fit(X, given, trusted=mask)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    quick(epochs=1, verbose=1).fit(X, given, trusted=mask)
    assert "karat" in capfd.readouterr().err


def test_pickle(fitted):
    X, *_ = blobs()
    copy = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    assert all(parameter.device.type == "cpu" for parameter in copy.network_.parameters())
    pd.testing.assert_frame_equal(copy.label_issues_, fitted.label_issues_)


def test_clone_and_parameters():
    classifier = KaratClassifier(settings={"methods.ieg.temperature": 0.3})
    twin = clone(classifier)
    assert twin.get_params() == classifier.get_params()
    assert twin.set_params(epochs=3, method="gce").epochs == 3


def test_a_pipeline_passes_the_mask_on():
    X, given, true, mask = blobs()
    pipeline = make_pipeline(StandardScaler(), quick(epochs=12))
    pipeline.fit(X, given, karatclassifier__trusted=mask)
    assert pipeline.score(X, true) > 0.9
    assert pipeline[-1].trusted_rows_.tolist() == np.flatnonzero(mask).tolist()


def test_a_grid_search_divides_the_mask_with_the_rows():
    """Each fold's fit sees its own rows of the mask; without them a NoTrustedLabelsWarning would be an error."""
    X, given, _, mask = blobs(rows=90)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = quick(epochs=1).set_fit_request(trusted=True)
        search = GridSearchCV(estimator, {"method": ["ieg", "gce"]}, cv=2, error_score="raise")
        search.fit(X, given, trusted=mask)
        assert search.best_estimator_.trusted_rows_.tolist() == np.flatnonzero(mask).tolist()
        scores = cross_val_score(estimator, X, given, cv=2, params={"trusted": mask}, error_score="raise")
    assert len(scores) == 2


def test_settings_reach_the_training():
    X, given, _, mask = blobs(rows=60)
    assert (
        quick(model="mlp", epochs=None, settings={"training": {"epochs": 3}}).fit(X, given, trusted=mask).n_iter_ == 3
    )
    assert quick(model="mlp", epochs=2, settings={"training.steps": 30}).fit(X, given, trusted=mask).n_iter_ == 2
    with pytest.raises(UserError, match=r"training\.epochs is 0: write 1 or more"):
        quick(epochs=0).fit(X, given, trusted=mask)
    with pytest.raises(UserError, match=r"training\.epochs is 2\.5: write a whole number"):
        quick(epochs=2.5).fit(X, given, trusted=mask)
    with pytest.raises(UserError, match=r"Did you mean 'methods\.ieg\.temperature'"):
        quick(settings={"methods.ieg.temprature": 1}).fit(X, given, trusted=mask)
    with pytest.raises(UserError, match="Unknown method 'iegg'"):
        quick(method="iegg").fit(X, given, trusted=mask)
    with pytest.raises(UserError, match=r"settings has method, noise\.rate, training\.device: leave it out"):
        quick(settings={"method": "ieg", "noise": {"rate": 0.9}, "training.device": "cpu"}).fit(X, given, trusted=mask)
    with pytest.warns(UserWarning, match=r"A fit does not read training\.threads: leave it out"):
        quick(epochs=1, settings={"training.threads": 1}).fit(X, given, trusted=mask)
    with pytest.warns(UserWarning, match=r"A dataset of vectors does not read augmentation\.cutout"):
        quick(epochs=1, settings={"augmentation.cutout": 0.1}).fit(X, given, trusted=mask)
    with pytest.warns(UserWarning, match=r"Method karat does not read methods\.ieg\.temperature"):
        quick(epochs=1, settings={"methods.ieg.temperature": 0.3}).fit(X, given, trusted=mask)


@pytest.mark.parametrize("method", ["co_teaching", "incv", "divide_mix"])
def test_two_networks_are_not_copies_of_one(method):
    X, given, _, mask = blobs(rows=60)
    with pytest.raises(UserError, match="needs networks that begin differently"):
        quick(method=method, epochs=2, model=nn.Linear(2, 3)).fit(X, given, trusted=mask)
    fitted = quick(method=method, epochs=2, model=lambda shape, classes: nn.Linear(2, classes))
    network = fitted.fit(X, given, trusted=mask).network_
    first, second = (part for part in network.modules() if isinstance(part, nn.Linear))
    assert not torch.equal(first.weight, second.weight)


@pytest.mark.parametrize(
    ("y", "trusted", "sentence"),
    [
        (None, [True] * 3, "mask of 3 rows, X has 60"),
        (None, [0, 60], "X has rows 0 to 59"),
        (None, np.tile([0, 1], 30), r"mask.astype\(bool\)"),
        (None, [0.5] * 60, "trusted has shape"),
        (None, np.ones(60, bool), "60 of n_samples = 60 are trusted"),
        (np.where(np.arange(60) < 2, np.nan, 1.0), None, "2 of 60 labels are missing"),
        (np.array([1, "a"] * 30, dtype=object), None, "mixes labels|Unknown label type"),
        (np.zeros(60, int), None, "y has 1 class"),
        (np.resize(["", "cat", "dog"], 60), None, r"X: 20 rows have no label \(row 0, row 3"),
    ],
)
def test_mistakes_are_sentences(y, trusted, sentence):
    X, given, _, mask = blobs(rows=60)
    with pytest.raises((UserError, ValueError), match=sentence):
        quick(epochs=1).fit(X, given if y is None else y, trusted=mask if trusted is None else trusted)


def test_importing_karat_loads_no_torch():
    code = "import sys, karat; assert 'torch' not in sys.modules; assert 'KaratClassifier' in dir(karat)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'Karat'"):
        karat.Karat  # noqa: B018


def test_wine_beats_training_on_all_labels():
    """The default budget on a real table, 60% of the labels wrong: plain training of the same network is the rival."""
    X, true = load_wine(return_X_y=True)
    draw = np.random.default_rng(0)
    mask = np.zeros(len(true), bool)
    for c in range(3):
        mask[np.flatnonzero(true == c)[:10]] = True
    given = np.where(~mask & (draw.random(len(true)) < 0.6), (true + draw.integers(1, 3, len(true))) % 3, true)
    rows = np.flatnonzero(~mask)
    scores = {
        method: quick(method=method, epochs=10).fit(X, given, trusted=mask).score(X[rows], true[rows])
        for method in ("ieg", "supervised")
    }
    assert scores["ieg"] > scores["supervised"] + 0.1
