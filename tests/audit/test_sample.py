"""The noise rate from a random sample: unbiased, its interval holds, and wrong files are refused in a sentence."""

import json
import runpy
import statistics
from pathlib import Path

import pytest
import torch
from records import made_up, uniform

from karat.audit.record import save_record
from karat.audit.run_audit import write_audit
from karat.audit.sample import Draw, draw, draw_sample, estimate_sample, sampled_share
from karat.audit.settings import AuditSettings
from karat.errors import UserError
from karat.files.safe_csv import read_safe_csv, write_safe_csv

COVERAGE = Path(__file__).parents[2] / "benchmarks" / "sample_coverage.py"


@pytest.fixture
def run(tmp_path):
    record, true = made_up(uniform(4, 0.4), examples=600, trusted=40, test=0, error=0.15)
    save_record(record, tmp_path / "ledger.safetensors")
    write_audit(tmp_path, AuditSettings(0.2))
    return tmp_path, record, true


def decided(folder, record, true, name="decisions.csv", **changes):
    """Write what somebody who knows the truth says of the sample of a run."""
    table = read_safe_csv(folder / "sample.csv")
    table["label"] = [record.classes[true[row]] for row in table["index"].tolist()]
    table["decision"] = ["keep" if row.label == row.given_label else "other" for row in table.itertuples()]
    write_safe_csv(table.assign(**changes), folder / name)
    return folder / name


def test_simulated_intervals_hold_and_are_narrow():
    """270 runs, with good and bad claims: 90% must hold the truth, half of them within 12 points; so of each claim."""
    found = runpy.run_path(str(COVERAGE))["all_simulated"](count=100)
    assert len(found) == 270
    assert statistics.mean(one.holds for one in found) >= 0.9
    assert statistics.median(one.width for one in found) <= 0.12
    for claims in {one.claims for one in found}:
        assert statistics.mean(one.holds for one in found if one.claims == claims) >= 0.85


def test_the_estimate_is_unbiased_where_every_claim_is_wrong():
    """The mean of 400 estimates differs from the truth by at most four of its standard errors."""
    generator = torch.Generator().manual_seed(0)
    wrong = (torch.rand(500, generator=generator) < 0.3).double()
    quality = wrong * 0.9 + 0.05  # the better a label is called, the worse it is
    found = []
    for _ in range(400):
        drawn = draw(quality, 40, generator)
        found.append(sampled_share(1 - quality, drawn, wrong[drawn.places]).value)
    assert statistics.mean(found) == pytest.approx(wrong.mean().item(), abs=4 * statistics.stdev(found) / 20)


def test_the_difference_estimator_by_hand():
    """Two strata of 4 and 6 rows, 2 and 3 drawn; claims 0.2 and 0.6, found wrong 1 of 2 and 3 of 3.

    rate = 0.4·0.2 + 0.6·0.6 + 0.4·(0.5 − 0.2) + 0.6·(1 − 0.6) = 0.8
    variance = 0.16·(1 − 2/4)·(1.5/3)·(1.5/3)/2 + 0.36·(1 − 3/6)·(3.5/4)·(0.5/4)/3 = 0.0100 + 0.0065625
    """
    claimed = torch.tensor([0.2] * 4 + [0.6] * 6, dtype=torch.float64)
    drawn = Draw(torch.tensor([0, 1, 4, 5, 6]), torch.tensor([0, 0, 1, 1, 1]), torch.tensor([4, 6]))
    found = sampled_share(claimed, drawn, torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64))
    assert found.value == pytest.approx(0.8)
    assert found.low == pytest.approx(0.8 - 1.959964 * 0.0165625**0.5)
    assert found.high == 1.0
    assert drawn.chances.tolist() == pytest.approx([0.5] * 5)


def test_no_error_found_is_no_proof_of_none():
    drawn = draw(torch.full((1000,), 0.999), 60, torch.Generator().manual_seed(0))
    found = sampled_share(torch.full((1000,), 0.001, dtype=torch.float64), drawn, torch.zeros(60, dtype=torch.float64))
    assert found.low == 0
    assert 0.01 < found.high < 0.08


def test_all_rows_leave_nothing_to_guess():
    wrong = torch.tensor([1.0, 0, 0, 1, 0, 0, 0], dtype=torch.float64)
    drawn = draw(torch.rand(7, generator=torch.Generator().manual_seed(1)), 100, torch.Generator().manual_seed(0))
    assert sorted(drawn.places.tolist()) == list(range(7))
    found = sampled_share(torch.full((7,), 0.5, dtype=torch.float64), drawn, wrong[drawn.places])
    assert found == pytest.approx((2 / 7, 2 / 7, 2 / 7))


def test_unsure_decisions_widen_the_interval():
    generator = torch.Generator().manual_seed(0)
    claimed = torch.rand(1000, generator=generator, dtype=torch.float64)
    drawn = draw(1 - claimed, 100, generator)
    found = (torch.rand(100, generator=generator, dtype=torch.float64) < claimed[drawn.places]).double()
    sure, unsure = sampled_share(claimed, drawn, found), found.clone()
    unsure[::10] = torch.nan
    wider = sampled_share(claimed, drawn, unsure)
    assert wider.low < sure.low < sure.high < wider.high


def test_a_sample_is_drawn_decided_and_estimated(run):
    """Somebody who knows the truth decides 100 of 600 rows; all three shares are in their intervals."""
    folder, record, true = run
    path, table = draw_sample(folder, 100)
    assert path == folder / "sample.csv"
    assert table.columns.tolist() == ["id", "index", "given_label", "decision", "label"]  # nothing that influences
    assert table["index"].nunique() == 100
    again = draw_sample(folder, 100)[1]
    assert again["index"].tolist() == table["index"].tolist()
    chances = {row["index"]: row["chance"] for row in json.loads((folder / "sample.json").read_text())["rows"]}
    assert chances.keys() == set(table["index"])
    assert sum(1 / chance for chance in chances.values()) == pytest.approx(600)  # every row stands for 1/chance rows

    found = estimate_sample(folder, decided(folder, record, true))
    wrong = (record.noisy.labels != true).double().mean().item()
    assert found.wrong.low <= wrong <= found.wrong.high
    assert found.right_before.low <= 1 - wrong <= found.right_before.high
    cleaned = read_safe_csv(folder / "cleaned_labels.csv").set_index("index").loc[:599]
    left = cleaned[cleaned["action"] != "review"]
    right = (left["cleaned_label"] == [record.classes[true[row]] for row in left.index]).mean()
    assert found.labels_after == len(left)
    assert found.right_after.low <= right <= found.right_after.high
    assert found.right_after.value > found.right_before.value
    stored = json.loads((folder / "sample_estimate.json").read_text())
    assert stored["wrong"]["high"] == found.wrong.high
    assert stored["sampled"] == 100

    write_audit(folder, AuditSettings(0.0))  # which changes nothing: other labels are left, and the sample still serves
    careful = estimate_sample(folder, folder / "decisions.csv")
    assert careful.wrong == found.wrong
    assert careful.changed_sampled == 0
    assert careful.labels_after < found.labels_after


def test_other_files_are_refused_in_a_sentence(run, tmp_path_factory):
    folder, record, true = run
    with pytest.raises(UserError, match="no sample was drawn: run `karat sample"):
        estimate_sample(folder, folder / "decisions.csv")
    with pytest.raises(UserError, match="at least 1"):
        draw_sample(folder, 0)
    draw_sample(folder, 20)
    path = decided(folder, record, true)
    table = read_safe_csv(path)
    estimate_sample(folder, path)

    def refused(changed, message):
        write_safe_csv(changed, folder / "other.csv")
        with pytest.raises(UserError, match=message):
            estimate_sample(folder, folder / "other.csv")

    refused(table.iloc[1:], "no decision about 1 of the 20 rows of the sample")
    refused(table.assign(decision=["", *table["decision"][1:]]), "no decision in 1 of 20 rows")
    refused(table.assign(decision="other", label="zebra"), "'zebra' of 'row .*' is no class of the run")
    refused(table.assign(given_label=table["given_label"].to_numpy()[::-1]), "so it is of another run")
    outside = next(row for row in range(600) if row not in set(table["index"]))
    further = table.iloc[:1].assign(id=f"row {outside}", index=outside, decision="unsure", label="")
    write_safe_csv(further, folder / "further.csv")
    refused(read_safe_csv(folder / "further.csv"), "decides 1 rows that are not of the sample")
    with pytest.raises(UserError, match="There is no file"):
        estimate_sample(folder, folder / "none.csv")

    another = tmp_path_factory.mktemp("another")
    save_record(made_up(uniform(4, 0.4), examples=600, trusted=40, test=0, seed=1)[0], another / "ledger.safetensors")
    (another / "sample.json").write_bytes((folder / "sample.json").read_bytes())
    with pytest.raises(UserError, match="is a sample of another run"):
        estimate_sample(another, path)
    (folder / "sample.json").write_text('{"run": 3}')
    with pytest.raises(UserError, match=r"sample\.json is a sample of another run"):
        estimate_sample(folder, path)
