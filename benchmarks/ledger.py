"""What a ledger of many rows costs: bytes on disk, the time of a batch's update, and its issues written as Parquet.

    python benchmarks/ledger.py [--rows 100000000] [--issues 10000000] [--classes 10] [--batch 256] [--folder FOLDER]

The ledger is mapped to files without a name in the folder, as in a run. Batches are of rows drawn at random, the worst
case for a mapped file, or of rows that follow each other. Issues are those of another, smaller ledger: found, sorted,
and written a million rows at a time.
"""

import argparse
import resource
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from karat.audit.ledger import COLUMNS, Ledger
from karat.audit.record import AuditRecord, LabelledRows
from karat.audit.run_audit import believe
from karat.audit.tables import label_issues
from karat.noise_matrix import uniform_transition

PIECE = 1_000_000
UPDATES = 200


def update(ledger: Ledger, rows: torch.Tensor, generator: torch.Generator) -> float:
    """Enter a batch of all that `ieg` finds out; return the seconds."""
    logits = torch.randn(len(rows), ledger.classes, generator=generator)
    labels, weights = torch.randint(ledger.classes, (len(rows),), generator=generator), torch.ones(len(rows))
    began = time.perf_counter()
    ledger.record(rows, logits, labels, weights, weights, logits.softmax(dim=1), logits)
    return time.perf_counter() - began


def record_of(ledger: Ledger, labels: torch.Tensor, rows: torch.Tensor) -> AuditRecord:
    """Return the record of some rows, with the noise of one half of the labels."""
    some, nobody = Ledger(0, ledger.classes), torch.zeros(0, dtype=torch.int64)
    for name in COLUMNS:
        setattr(some, name, getattr(ledger, name)[rows])
    return AuditRecord(
        tuple(map(str, range(ledger.classes))),
        LabelledRows(tuple(map(str, rows.tolist())), rows, labels[rows]),
        some,
        LabelledRows((), nobody, nobody),
        Ledger(0, ledger.classes),
        torch.zeros(0, ledger.classes),
        nobody,
        transition=uniform_transition(ledger.classes, 0.5),
    )


def write_issues(ledger: Ledger, labels: torch.Tensor, path: Path) -> None:
    """Write the issues of all rows, the most suspicious first, a piece at a time."""
    pieces = (record_of(ledger, labels, rows) for rows in torch.arange(len(ledger)).split(PIECE))
    order = torch.cat([believe(piece)[1].quality for piece in pieces]).argsort(stable=True)
    with ExitStack() as stack:
        writer = None
        for rows in order.split(PIECE):
            piece = record_of(ledger, labels, rows)
            table = pa.Table.from_pandas(label_issues(piece, believe(piece)[1]), preserve_index=False)
            writer = writer or stack.enter_context(pq.ParquetWriter(path, table.schema))
            writer.write_table(table)


def main() -> None:
    """Print bytes, times and the most memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("rows", 100_000_000), ("issues", 10_000_000), ("classes", 10), ("batch", 256)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    began, processor = time.perf_counter(), time.process_time()
    ledger = Ledger(options.rows, options.classes, options.folder)
    size = sum(column.numel() * column.element_size() for column in ledger.state_dict().values())
    print(
        f"{options.rows:,} rows, {options.classes} classes: {size / options.rows:.0f} bytes a row, "
        f"{size / 2**30:.1f} GiB; made in {time.perf_counter() - began:.0f} s "
        f"({time.process_time() - processor:.0f} s of a processor)"
    )
    for name in ("at random", "in order"):
        times = []
        for number in range(UPDATES):
            rows = torch.randint(options.rows, (options.batch,), generator=generator)
            rows = rows if name == "at random" else torch.arange(options.batch) + number * options.batch
            times.append(update(ledger, rows, generator))
        print(f"a batch of {options.batch} rows {name}: {1000 * median(times):.2f} ms in the median")
    del ledger
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path, ledger = Path(folder) / "issues.parquet", Ledger(options.issues, options.classes, Path(folder))
        for rows in torch.arange(options.issues).split(PIECE):
            update(ledger, rows, generator)
        labels = torch.randint(options.classes, (options.issues,), generator=generator)
        began, processor = time.perf_counter(), time.process_time()
        write_issues(ledger, labels, path)
        print(
            f"issues of {options.issues:,} rows: {time.perf_counter() - began:.0f} s "
            f"({time.process_time() - processor:.0f} s of a processor), {path.stat().st_size / 2**20:,.0f} MiB"
        )
    print(
        f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB in memory, mapped pages included"
    )


if __name__ == "__main__":
    main()
