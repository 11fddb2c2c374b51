"""How many labels are wrong, from a random sample that a person looks at: the draw, and what its decisions say.

Rows are drawn within strata of label quality, each row of a stratum with the same chance. With x_i the claimed
probability that label i is wrong, y_i what the person found, S_h the share of the rows in stratum h and n_h how many of
them were drawn,

    rate = mean(x) + Σ_h S_h·mean_h(y − x)          variance = Σ_h S_h²·(1 − n_h/N_h)·p_h·(1 − p_h)/n_h

(the difference estimator, or prediction-powered inference): unbiased whatever the claims are worth, and narrow where
they are worth something. p_h is the share of y = 1 in the stratum with half a right and half a wrong label added, so
that a stratum without one error found is not called free of errors.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from karat.audit.record import AuditRecord, load_record
from karat.audit.review import read_all_decisions
from karat.audit.run_audit import believe, settings_used
from karat.audit.tables import clean
from karat.errors import UserError
from karat.files.json_files import read_json, write_json
from karat.files.safe_csv import read_safe_csv, write_safe_csv

STRATA = 5
# The standard deviation of a label is taken as √(q(1−q) + FLOOR): sure claims may be wrong, too. Both are a middle
# choice: others of 4 to 8 strata and floors from 0.003 to 0.1 are narrower, or hold more often where claims are random.
FLOOR = 0.03
_Z = 1.959964


class Draw(NamedTuple):
    """Places of the drawn rows in random order, the stratum of each, and how many rows each stratum has."""

    places: Tensor
    strata: Tensor
    sizes: Tensor

    @property
    def chances(self) -> Tensor:
        """Return how likely each drawn row was to be drawn."""
        return (self.strata.bincount(minlength=len(self.sizes)) / self.sizes)[self.strata]


class Share(NamedTuple):
    """A share with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1%} ({self.low:.1%} to {self.high:.1%})"


@dataclass(frozen=True)
class SampleEstimate:
    """What a random sample says of the labels, as sample_estimate.json has it.

    Shares have 95% intervals. `right_after` is the share of right labels among the `labels_after` that
    cleaned_labels.csv keeps or changes; None where it leaves none. The intervals hold whatever `unsure` rows are.
    """

    wrong: Share
    right_before: Share
    right_after: Share | None
    labels_before: int
    labels_after: int
    sampled: int
    unsure: int
    changed_sampled: int
    changed_wrong: int


def draw(quality: Tensor, count: int, generator: torch.Generator) -> Draw:
    """Draw rows, as many from each stratum; strata have equal sums of the standard deviation √(q(1−q)) of their labels.

    That is Neyman's allocation. A stratum with too few rows is taken whole, and the largest ones give the rest.

    >>> drawn = draw(torch.linspace(0, 1, 1000), 100, torch.Generator().manual_seed(0))
    >>> drawn.strata.bincount().tolist(), drawn.sizes.tolist()
    ([20, 20, 20, 20, 20], [244, 173, 165, 173, 245])
    """
    quality = quality.double()
    count = min(count, len(quality))
    order = torch.randperm(len(quality), generator=generator)  # so that ties are dealt at random
    order = order[quality[order].argsort(stable=True)]
    spread = (quality[order] * (1 - quality[order]) + FLOOR).sqrt().cumsum(0)
    number = min(STRATA, count)
    strata = torch.empty_like(order)
    strata[order] = (spread / spread[-1] * number).ceil().long().clamp(1, number) - 1
    sizes = strata.bincount(minlength=number)
    drawn = sizes.clamp(max=count // number)
    while drawn.sum() < count:
        drawn[(sizes / (drawn + 1)).where(drawn < sizes, -1.0).argmax()] += 1
    mixed = torch.randperm(len(quality), generator=generator)
    places = torch.cat([mixed[strata[mixed] == stratum][: drawn[stratum]] for stratum in range(number)])
    places = places[torch.randperm(count, generator=generator)]
    return Draw(places, strata[places], sizes)


def sampled_share(claimed: Tensor, drawn: Draw, found: Tensor) -> Share:
    """Return the share of rows with y = 1 from the claims of all rows and what was `found` of the drawn ones.

    NaN in `found` is not known: the claim stands for it, and the interval holds whatever it is.
    """
    known = found.where(~found.isnan(), claimed[drawn.places])
    value, _ = _difference(claimed, drawn, known)
    low, high = (_difference(claimed, drawn, found.nan_to_num(filled)) for filled in (0.0, 1.0))
    ends = max(0.0, low[0] - _Z * low[1]), min(1.0, high[0] + _Z * high[1])
    return Share(min(max(value, ends[0]), ends[1]), *ends)


def _difference(claimed: Tensor, drawn: Draw, found: Tensor) -> tuple[float, float]:
    """Return the difference estimate and its standard error."""
    value, variance = claimed.mean().item(), 0.0
    for stratum, size in enumerate(drawn.sizes.tolist()):
        chosen = drawn.strata == stratum
        count, share = int(chosen.sum()), size / len(claimed)
        if not count:
            continue
        value += share * (found[chosen] - claimed[drawn.places[chosen]]).mean().item()
        p = (found[chosen].sum().item() + 0.5) / (count + 1)
        variance += share**2 * (1 - count / size) * p * (1 - p) / count
    return value, math.sqrt(variance)


def draw_sample(folder: Path, count: int = 100, seed: int = 0) -> tuple[Path, pd.DataFrame]:
    """Draw rows of a run at random; write sample.csv to be decided, and sample.json with their strata for `estimate`.

    The file to be decided says nothing of what is thought about a row. The same seed draws the same rows.
    """
    if count < 1:
        raise UserError(f"--count is {count}: ask for at least 1 row.")
    if not 0 <= seed < 2**62:
        raise UserError(f"--seed is {seed}: write a whole number from 0 to 2^62 - 1.")
    record = load_record(folder / "ledger.safetensors")
    drawn = draw(believe(record)[1].quality, count, torch.Generator().manual_seed(seed))
    index = record.noisy.index[drawn.places].tolist()
    write_json(
        folder / "sample.json",
        {
            "run": _identity(record),
            "count": count,
            "seed": seed,
            "sizes": drawn.sizes.tolist(),
            "rows": [
                {"index": row, "stratum": stratum, "chance": chance}
                for row, stratum, chance in zip(index, drawn.strata.tolist(), drawn.chances.tolist(), strict=True)
            ],
        },
    )
    labels = record.noisy.labels[drawn.places].tolist()
    table = pd.DataFrame(
        {
            "id": pd.Series([record.noisy.names[place] for place in drawn.places.tolist()], dtype=object),
            "index": index,
            "given_label": pd.Series([record.classes[label] for label in labels], dtype=object),
            "decision": "",
            "label": "",
        }
    )
    write_safe_csv(table, folder / "sample.csv")
    return folder / "sample.csv", table


def estimate_sample(folder: Path, decisions: Path) -> SampleEstimate:
    """Return what the decisions about the sample of a run say of all its labels; write sample_estimate.json."""
    record = load_record(folder / "ledger.safetensors")
    drawn = _read_draw(folder, record)
    decided = _decided(folder, decisions, record, drawn)
    believed = believe(record)[1]
    cleaning = clean(believed, settings_used(folder).error_rate)
    given, left, changed = record.noisy.labels, ~cleaning.review, cleaning.changed[drawn.places]
    found = _compared(record, drawn, decided, given)
    wrong = sampled_share(1 - believed.quality.double(), drawn, found)
    after = _compared(record, drawn, decided, torch.where(cleaning.changed, believed.other, given))
    after = after.where(left[drawn.places], 0.0)  # a label that is left out cannot be wrong
    right = torch.where(cleaning.changed, believed.confidence, believed.quality).double()
    claimed_after = (1 - right).where(left, 0.0)
    count, total = int(left.sum()), len(record.noisy)
    estimate = SampleEstimate(
        wrong=wrong,
        right_before=_complement(wrong),
        right_after=_complement(sampled_share(claimed_after, drawn, after), total / count) if count else None,
        labels_before=total,
        labels_after=count,
        sampled=len(drawn.places),
        unsure=int(found.isnan().sum()),
        changed_sampled=int(changed.sum()),
        changed_wrong=int(after[changed].nansum()),
    )
    shares = {name: share._asdict() for name, share in vars(estimate).items() if isinstance(share, Share)}
    write_json(folder / "sample_estimate.json", {**asdict(estimate), **shares})
    return estimate


def _complement(share: Share, scale: float = 1.0) -> Share:
    value, low, high = (1 - min(1.0, scale * end) for end in (share.value, share.high, share.low))
    return Share(value, low, high)


def _compared(record: AuditRecord, drawn: Draw, decided: dict[int, str | None], labels: Tensor) -> Tensor:
    """Return 1 where a drawn row's label is not the verified one, 0 where it is, NaN where nobody is sure."""
    verified = [decided[row] for row in record.noisy.index[drawn.places].tolist()]
    names = [record.classes[label] for label in labels[drawn.places].tolist()]
    found = [math.nan if one is None else float(name != one) for name, one in zip(names, verified, strict=True)]
    return torch.tensor(found, dtype=torch.float64)


def _read_draw(folder: Path, record: AuditRecord) -> Draw:
    path = folder / "sample.json"
    if not path.exists():
        raise UserError(f"{path} is missing, so no sample was drawn: run `karat sample {folder}`, and decide its rows.")
    again = f"draw one with `karat sample {folder}`, and decide its rows"
    stored = read_json(path, again)
    if stored.get("run") != _identity(record):
        raise UserError(f"{path} is a sample of another run: {again}.")
    places = {row: place for place, row in enumerate(record.noisy.index.tolist())}
    try:
        rows: list[dict[str, Any]] = stored["rows"]
        drawn = Draw(
            torch.tensor([places[row["index"]] for row in rows]),
            torch.tensor([row["stratum"] for row in rows]),
            torch.tensor(stored["sizes"]),
        )
        drawn.chances  # noqa: B018  # every stratum of a row must be there
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise UserError(f"{path} is damaged: {again}.") from error
    return drawn


def _decided(folder: Path, decisions: Path, record: AuditRecord, drawn: Draw) -> dict[int, str | None]:
    """Return the verified label of each drawn row, None where nobody is sure; refuse decisions about others."""
    table = read_safe_csv(decisions)
    sampled = set(record.noisy.index[drawn.places].tolist())
    if "decision" in table:
        empty = int((table["decision"].fillna("").astype(str).str.strip() == "").sum())
        if empty:
            raise UserError(
                f"{decisions} has no decision in {empty} of {len(table)} rows: write keep, other (with the label) or "
                "unsure in each, since leaving rows out would bias the estimate."
            )
    decided = read_all_decisions(decisions, record)
    others = [row for row in decided if row not in sampled]
    if others:
        raise UserError(
            f"{decisions} decides {len(others)} rows that are not of the sample, such as the one at index {others[0]}: "
            f"give the decisions about {folder / 'sample.csv'}, since rows that were not drawn at random would bias "
            "the estimate."
        )
    missing = sorted(sampled - decided.keys())
    if missing:
        raise UserError(
            f"{decisions} has no decision about {len(missing)} of the {len(sampled)} rows of the sample, such as the "
            f"one at index {missing[0]}: decide all of them (unsure is a decision)."
        )
    if "given_label" in table and "index" in table:
        given = dict(zip(record.noisy.index.tolist(), record.noisy.labels.tolist(), strict=True))
        for row, label in zip(table["index"].tolist(), table["given_label"].tolist(), strict=True):
            if record.classes[given[int(row)]] != str(label):
                raise UserError(
                    f"{decisions} has another given label at index {row} than {folder}, so it is of another run: give "
                    f"the decisions about {folder / 'sample.csv'}."
                )
    return decided


def _identity(record: AuditRecord) -> str:
    """Return what tells the labels of a run from those of others."""
    digest = hashlib.blake2b(json.dumps([record.classes, record.noisy.names]).encode(), digest_size=9)
    for column in (record.noisy.index, record.noisy.labels):
        digest.update(json.dumps(column.tolist()).encode())
    return digest.hexdigest()
