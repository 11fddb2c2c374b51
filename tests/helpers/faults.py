"""Break runs in every way that a machine breaks them, and count what survives.

    python tests/helpers/faults.py                      # the long form, about ten minutes of one core
    python tests/helpers/faults.py --short              # what the tests run
    python tests/helpers/faults.py --only kills         # one kind; --seed N draws other moments
    python tests/helpers/faults.py --subject karat --share 0.2    # a fifth of the trials with the default method

Each trial trains on wine (or on a table of texts) in a process of its own, forked from this one (which has imported
everything), breaks it, lets it go on, and compares model, tables and metrics with those of an undisturbed run, bit for
bit. A trial fails where something differs, where a traceback is printed, or where the exit code is not the one that is
promised.
"""

import argparse
import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import karat.commands
import karat.methods.ieg
from karat.cli import main
from karat.files.metrics_log import MetricsLog, read_metrics
from karat.training.trainer import Trainer

STEPS = ("--training.steps", "24", "--training.checkpoint_every", "3", "--training.device", "cpu")
WINE = ("wine", "--noise.kind", "uniform", "--noise.rate", "0.4", "--data.trusted_per_class", "3")
SUBJECTS = {  # what is trained
    "ieg": (*WINE, "--method", "ieg", *STEPS),
    "karat": (*WINE, "--method", "karat", "--model", "mlp", *STEPS),
    "texts": ("{folder}/texts.csv", "--method", "supervised", *STEPS),
}
RESULTS = ("model.safetensors", "label_issues.csv", "cleaned_labels.csv", "noise_estimate.json", "noisy_labels.csv")
TRACEBACK = "Traceback (most recent call last)"


class Ended(NamedTuple):
    """How a process ended: its exit code (negative: by a signal), and what it said."""

    code: int
    said: str


class Trials:
    """Run commands in forked processes and count what became of them."""

    def __init__(self, seed: int, folder: Path, subject: str = "ieg") -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.options = [part.format(folder=folder) for part in SUBJECTS[subject]]
        write_texts(folder / "texts.csv", seed)
        self.straight = folder / "straight"
        self.counts: dict[str, int] = {}
        self.failures: list[str] = []
        self.number = 0
        for path in (self.straight, self.new()):  # the first one here, so that everything is imported before a fork
            began = time.process_time()
            assert main(["train", *self.options, "--run", str(path)]) == 0
            self.seconds = time.process_time() - began
        self.new_data = folder / "texts.csv"
        if subject != "texts":
            width = json.loads((self.straight / "schema.json").read_text())["input_shape"][0]
            self.new_data = folder / "new.npz"
            np.savez(self.new_data, inputs=np.random.default_rng(seed).random((5, width), "float32"))

    def start(self, *arguments: Any, prepare: Callable[[], None] | None = None) -> tuple[int, int]:
        """Start a command in a forked process; return its id and the pipe that it talks to."""
        log, output = os.pipe()  # a limit of file sizes does not hold for a pipe
        pid = os.fork()
        if pid:
            os.close(output)
            return pid, log
        code = 70
        try:
            os.dup2(output, 1)
            os.dup2(output, 2)
            if prepare is not None:
                prepare()
            code = main([str(argument) for argument in arguments])
            sys.stdout.flush()
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 70
        except BaseException:
            import traceback

            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)

    @staticmethod
    def wait(pid: int, log: int) -> Ended:
        """Wait for a process."""
        with os.fdopen(log, "rb") as pipe:
            said = pipe.read().decode(errors="replace")
        return Ended(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said)

    def run(self, *arguments: Any, prepare: Callable[[], None] | None = None) -> Ended:
        """Run a command to its end."""
        return self.wait(*self.start(*arguments, prepare=prepare))

    def new(self) -> Path:
        """Return the path of a new run folder."""
        self.number += 1
        return self.folder / f"run-{self.number}"

    def train(self, folder: Path, **how: Any) -> Ended:
        """Train in a folder, or go on there."""
        return self.run(*self.training(folder), **how)

    def training(self, folder: Path) -> list[Any]:
        """Return the command that begins a run or goes on with it."""
        begun = (folder / "config.yaml").exists()
        return ["train", "--resume", "--run", folder] if begun else ["train", *self.options, "--run", folder]

    def judge(self, kind: str, what: str, problem: str | None) -> None:
        """Count a trial; a problem is kept."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if problem:
            self.failures.append(f"{kind}: {what}: {problem}")

    def settled(self, folder: Path) -> str | None:
        """Go on to the end; return what is wrong then."""
        ended = self.train(folder)
        if ended.code != 0 or TRACEBACK in ended.said:
            return f"going on ended with {ended.code}: {ended.said[-600:]}"
        return self.different(folder)

    def different(self, folder: Path) -> str | None:
        """Return which result is not that of the undisturbed run, or which file is left over."""
        for name in RESULTS:
            if (folder / name).read_bytes() != (self.straight / name).read_bytes():
                return f"{name} differs"
        if metrics(folder) != metrics(self.straight):
            return "metrics.jsonl differs"
        left = {path.name for path in folder.iterdir()} ^ {path.name for path in self.straight.iterdir()}
        return f"left over or missing: {sorted(left)}" if left else None

    def one_sentence(self, ended: Ended) -> str | None:
        """Return what is wrong with how a command ended that could not do its work."""
        if TRACEBACK in ended.said:
            return f"a traceback: {ended.said[-1500:]}"
        if ended.code not in (0, 2):
            return f"exit code {ended.code}: {ended.said[-600:]}"
        if ended.code == 2 and "karat: " not in ended.said:
            return f"nothing said: {ended.said[-600:]}"
        return None


def write_texts(path: Path, seed: int) -> None:
    """Write a table of texts of three classes."""
    draw, words = random.Random(seed), ("apple pear plum", "car bus train", "red blue green")
    rows = [f"{' '.join(draw.choices(words[n % 3].split(), k=5))},{'xyz'[n % 3]},{n < 12}" for n in range(90)]
    path.write_text("\n".join(["text,label,trusted", *rows]) + "\n")


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run without their times."""
    records = read_metrics(folder / "metrics.jsonl", damaged="skip")
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


# ---------------------------------------------------------------- kills


def random_kills(trials: Trials, count: int) -> None:
    """SIGKILL at any moment, up to three times in one run."""
    while trials.counts.get("kills at random moments", 0) < count:
        folder = trials.new()
        killed = 0
        for _ in range(3):
            pid, log = trials.start(*trials.training(folder))
            time.sleep(trials.random.uniform(0, 1.1 * trials.seconds))
            os.kill(pid, signal.SIGKILL)
            killed += trials.wait(pid, log).code == -signal.SIGKILL
        problem = trials.settled(folder)
        for _ in range(killed):
            trials.judge("kills at random moments", folder.name, problem)
        shutil.rmtree(folder, ignore_errors=True)


def at_write(number: int, bytes_left: int, deadly: bool) -> Callable[[], None]:
    """Return what makes the `number`-th file of a process end after some bytes: with EFBIG, or with the process.

    The system's limit of file sizes stops every writer, also those in Rust and C++, in the middle of a write.
    """

    def prepare() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        count = iter(range(10**9))
        touch, append = Path.touch, MetricsLog.append
        infinite = resource.RLIM_INFINITY

        def limit(size: int) -> None:
            if next(count) == number:
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, infinite))
            elif not deadly:  # the disk has room again
                resource.setrlimit(resource.RLIMIT_FSIZE, (infinite, infinite))

        def limited_touch(self: Path, *arguments: Any, **options: Any) -> None:
            limit(bytes_left)
            touch(self, *arguments, **options)

        def limited_append(self: MetricsLog, record: Any) -> None:
            limit(self.position() + bytes_left)
            append(self, record)

        Path.touch, MetricsLog.append = limited_touch, limited_append  # type: ignore[method-assign]

    return prepare


def files_of_a_run(trials: Trials) -> int:
    """Return how many files and lines of metrics an undisturbed run writes."""
    counter = trials.folder / "writes"

    def prepare() -> None:
        touch, append = Path.touch, MetricsLog.append

        def note() -> None:
            with counter.open("a") as file:
                file.write("x")

        def counted_touch(self: Path, *arguments: Any, **options: Any) -> None:
            note()
            touch(self, *arguments, **options)

        def counted_append(self: MetricsLog, record: Any) -> None:
            note()
            append(self, record)

        Path.touch, MetricsLog.append = counted_touch, counted_append  # type: ignore[method-assign]

    folder = trials.new()
    trials.train(folder, prepare=prepare)
    shutil.rmtree(folder)
    return counter.stat().st_size


def kills_in_writes(trials: Trials, count: int) -> None:
    """Death in the middle of writing the first, second, ... file."""
    writes = files_of_a_run(trials)
    tries = 0
    while trials.counts.get("kills in the middle of a write", 0) < count and tries < 20 * count:
        folder, number = trials.new(), tries % writes
        tries += 1
        ended = trials.train(folder, prepare=at_write(number, trials.random.choice((0, 1, 7, 100, 1000)), deadly=True))
        if ended.code == -signal.SIGXFSZ:
            trials.judge("kills in the middle of a write", f"write {number}", trials.settled(folder))
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- failing writes


def failing_writes(trials: Trials, count: int) -> None:
    """A write that fails after some bytes: the file is too large for its limit."""
    writes = files_of_a_run(trials)
    for number in range(count):
        folder, place = trials.new(), number % writes
        ended = trials.train(folder, prepare=at_write(place, trials.random.choice((0, 5, 300)), deadly=False))
        problem = trials.one_sentence(ended) or trials.settled(folder)
        trials.judge("failing writes", f"write {place}", problem)
        shutil.rmtree(folder, ignore_errors=True)


CALLS = {"fsync": os.fsync, "replace": os.replace, "link": os.link, "close": os.close}
REASONS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT)


def failing_calls(trials: Trials, count: int) -> None:
    """fsync, rename and link that fail once, for every reason that a file system has."""
    for number in range(count):
        name = ("fsync", "replace", "link", "touch", "unlink")[number % 5]
        place, reason = number // 5 % 40, REASONS[number % len(REASONS)]

        def prepare(name: str = name, place: int = place, reason: int = reason) -> None:
            owner: Any = Path if name in ("touch", "unlink") else os
            real, calls = getattr(owner, name), iter(range(10**9))

            def failing(*arguments: Any, **options: Any) -> Any:
                if next(calls) == place:
                    raise OSError(reason, os.strerror(reason))
                return real(*arguments, **options)

            setattr(owner, name, failing)

        folder = trials.new()
        ended = trials.train(folder, prepare=prepare)
        problem = trials.one_sentence(ended) or trials.settled(folder)
        trials.judge("failing fsync, rename, link, unlink, open", f"{name} {place} {os.strerror(reason)}", problem)
        shutil.rmtree(folder, ignore_errors=True)


def full_disks(trials: Trials, count: int) -> None:
    """A real full disk: a small tmpfs, filled up to some bytes; then there is room again."""
    mount = trials.folder / "disk"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(mount)], check=False).returncode:
        print("No tmpfs can be mounted here: full disks are left out.")
        return
    try:
        need = sum(path.stat().st_size for path in trials.straight.rglob("*") if path.is_file())
        for _ in range(count):
            folder = mount / "run"
            filler = mount / "filler"
            free = trials.random.randrange(0, int(1.3 * need))
            filler.write_bytes(bytes(max(0, 8 * 2**20 - free - 2**16)))
            ended = trials.train(folder)
            problem = trials.one_sentence(ended)
            filler.unlink()
            trials.judge("full disks", f"{free:,} bytes free", problem or trials.settled(folder))
            shutil.rmtree(folder, ignore_errors=True)
        folder = mount / "read-only"
        trials.run("train", *trials.options, "--run", folder)
        options = ["mount", "-o", "remount,ro", str(mount)]
        subprocess.run(options, check=True)
        for command in (("train", *trials.options, "--run", mount / "new"), ("audit", folder), ("report", folder)):
            ended = trials.run(*command)
            problem = trials.one_sentence(ended) or (None if ended.code == 2 else f"exit code {ended.code}")
            trials.judge("disks that may not be written", str(command[0]), problem)
    finally:
        subprocess.run(["umount", str(mount)], check=False)


# ---------------------------------------------------------------- signals, clocks, neighbours, numbers


def signals(trials: Trials, count: int) -> None:
    """SIGTERM and SIGINT at any moment: exit code 143 or 130, and going on."""
    for number in range(count):
        asked = (signal.SIGTERM, signal.SIGINT)[number % 2]
        folder = trials.new()
        pid, log = trials.start(*trials.training(folder))
        time.sleep(trials.random.uniform(0.05, trials.seconds))
        os.kill(pid, asked)
        ended = trials.wait(pid, log)
        problem = None
        if TRACEBACK in ended.said or ended.code not in (0, 128 + asked, -asked):
            problem = f"exit code {ended.code}: {ended.said[-600:]}"
        trials.judge("SIGTERM and SIGINT", asked.name, problem or trials.settled(folder))
        shutil.rmtree(folder, ignore_errors=True)


def clocks(trials: Trials, count: int) -> None:
    """A clock that jumps by up to a year at every look."""
    for _ in range(count):
        jumps = random.Random(trials.random.random())

        def prepare(jumps: random.Random = jumps) -> None:
            time.time = lambda: jumps.uniform(-3e7, 2e9)  # type: ignore[assignment]

        folder = trials.new()
        ended = trials.train(folder, prepare=prepare)
        problem = trials.one_sentence(ended) or trials.different(folder)
        trials.judge("jumping clocks", folder.name, problem)
        shutil.rmtree(folder, ignore_errors=True)


def neighbours(trials: Trials, count: int) -> None:
    """Two processes in one folder: one of them is refused, the other one ends well."""
    for _ in range(count):
        folder = trials.new()
        both = [trials.start(*trials.training(folder)) for _ in range(2)]
        ended = [trials.wait(*one) for one in both]
        codes = sorted(one.code for one in ended)
        problem = next(filter(None, map(trials.one_sentence, ended)), None)
        if codes != [0, 2]:
            problem = problem or f"exit codes {codes}"
        trials.judge("two runs in one folder", folder.name, problem or trials.different(folder))
        shutil.rmtree(folder, ignore_errors=True)


def not_finite(trials: Trials, count: int) -> None:
    """A loss that is NaN or infinite once, or from some step on."""
    for number in range(count):
        place, value = trials.random.randrange(24), (float("nan"), float("inf"))[number % 2]
        for ever in (False, True):

            def prepare(place: int = place, value: float = value, ever: bool = ever) -> None:
                real, calls = karat.methods.ieg.ieg, iter(range(10**9))

                def step(*arguments: Any) -> Any:
                    result, call = real(*arguments), next(calls)
                    if call == place or (ever and call > place):
                        return result._replace(losses={"total": torch.tensor(value)})
                    return result

                karat.methods.ieg.ieg = step  # type: ignore[assignment]

            folder = trials.new()
            ended = trials.train(folder, prepare=prepare)
            problem = trials.one_sentence(ended)
            if ended.code != (2 if ever else 0) or "diverged at step" not in ended.said:
                problem = problem or f"exit code {ended.code}: {ended.said[-600:]}"
            if not ever and not problem and "The run goes on from step" not in ended.said:
                problem = "it did not say that it went back"
            trials.judge("losses that are not finite", f"step {place}, ever {ever}", problem)
            shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- damaged files


def damaged(content: bytes, draw: random.Random) -> tuple[str, bytes | None]:
    """Return a kind of damage and the damaged content; None where the file is gone."""
    kind = draw.choice(("flip", "flip", "flip", "truncate", "truncate", "zeros", "empty", "gone", "swap"))
    if not content or kind == "gone":
        return "gone", None
    place = draw.randrange(len(content))
    if kind == "flip":
        bit = 1 << draw.randrange(8)
        return f"bit {bit} of byte {place} flipped", content[:place] + bytes([content[place] ^ bit]) + content[
            place + 1 :
        ]
    if kind == "truncate":
        return f"cut to {place} bytes", content[:place]
    if kind == "zeros":
        return f"zeros from byte {place}", content[:place] + bytes(min(512, len(content) - place)) + content[
            place + 512 :
        ]
    if kind == "swap":
        return f"halves swapped at {place}", content[place:] + content[:place]
    return "emptied", b""


def damage_of_unfinished(trials: Trials, count: int) -> None:
    """Damage in every file of a run that was killed: it goes on to the same bits, or says one sentence."""
    killed = trials.new()

    def die() -> None:
        real = Trainer.train_step

        def step(self: Trainer) -> Any:
            if self.steps_done == 16:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(self)

        Trainer.train_step = step  # type: ignore[method-assign]

    trials.train(killed, prepare=die)
    names = sorted(path.name for path in killed.iterdir() if path.is_file() and path.name != ".lock")
    for number in range(count):
        name = names[number % len(names)]
        folder = trials.new()
        shutil.copytree(killed, folder)
        how, content = damaged((folder / name).read_bytes(), trials.random)
        (folder / name).unlink()  # not through the link that the checkpoint before shares
        if content is not None:
            (folder / name).write_bytes(content)
        ended = trials.train(folder)
        problem = trials.one_sentence(ended)
        if ended.code == 0 and not problem:
            problem = trials.different(folder)
            if problem == "metrics.jsonl differs" and "metrics.jsonl is damaged" in ended.said:
                problem = None  # lines of past epochs, for people to look at: said, and no step depends on them
        trials.judge("damage in an unfinished run", f"{name}: {how}", problem)
        shutil.rmtree(folder, ignore_errors=True)


MUST_BE_SAID = {
    *("model.safetensors", "schema.json", "text.safetensors", "ledger.safetensors", "config.yaml", "results.json"),
}


def damage_of_finished(trials: Trials, count: int) -> None:
    """Damage in every file of a finished run: predictions and audit are the same, or it is said."""
    whole = trials.new()
    shutil.copytree(trials.straight, whole)
    trials.run("sample", whole, "--count", "9")
    sample = (whole / "sample.csv").read_text().replace(',"",""', ',"keep",""')
    (trials.folder / "decisions.csv").write_text(sample)
    trials.run("estimate", whole, trials.folder / "decisions.csv")
    trials.run("suggest", whole, "--count", "5")
    names = sorted(path.name for path in whole.iterdir() if path.is_file())
    used = trials.new()
    shutil.copytree(whole, used)
    expected = _use(trials, used)
    assert not any(ended.code for ended in expected[0]), expected[0]
    for number in range(count):
        name = names[number % len(names)]
        folder = trials.new()
        shutil.copytree(whole, folder)
        how, content = damaged((folder / name).read_bytes(), trials.random)
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content)
        endings, found = _use(trials, folder)
        problem = next(filter(None, map(trials.one_sentence, endings)), None)
        said = any(ended.code == 2 or name in ended.said for ended in endings)
        if not problem and not said and found != expected[1]:
            problem = "other results, and nothing is said"
        must_be_said = name in MUST_BE_SAID
        if not problem and must_be_said and not said:
            problem = "nothing is said"
        trials.judge("damage in a finished run", f"{name}: {how}", problem)
        shutil.rmtree(folder, ignore_errors=True)


def _use(trials: Trials, folder: Path) -> tuple[list[Ended], dict[str, bytes]]:
    """Use a finished run in every way; return how the commands ended and what they wrote."""
    out = folder / "predictions.csv"
    commands = (
        ("predict", folder, trials.new_data, "--out", out, "--probabilities"),
        *([("evaluate", folder)] if trials.new_data.suffix == ".npz" else [("evaluate", folder, trials.new_data)]),
        ("report", folder),
        ("estimate", folder, trials.folder / "decisions.csv"),
        ("apply", folder, trials.folder / "decisions.csv"),
        ("audit", folder),
        ("suggest", folder, "--count", "5"),
    )
    endings = [trials.run(*command) for command in commands]
    names = ("predictions.csv", "label_issues.csv", "suggestions.csv", "labels.csv", "sample_estimate.json")
    return endings, {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


KINDS: dict[str, list[tuple[Callable[[Trials, int], None], int, int]]] = {  # long and short counts
    "kills": [(random_kills, 90, 3), (kills_in_writes, 60, 3)],
    "writes": [(failing_writes, 60, 3), (failing_calls, 120, 5), (full_disks, 30, 0)],
    "signals": [(signals, 20, 2), (clocks, 3, 1), (neighbours, 5, 1), (not_finite, 6, 1)],
    "damage": [(damage_of_unfinished, 110, 8), (damage_of_finished, 90, 4)],
}


def report(trials: Trials) -> int:
    """Print the counts; return the exit code."""
    for kind, count in trials.counts.items():
        failed = sum(failure.startswith(f"{kind}: ") for failure in trials.failures)
        print(f"{kind:45s} {count - failed:4d} of {count:4d}")
    for failure in trials.failures:
        print(f"FAILED {failure}")
    return 1 if trials.failures else 0


def run_faults(only: str | None, short: bool, seed: int, subject: str = "ieg", share: float = 1.0) -> int:
    """Run the trials, or a share of them, and print the counts."""
    torch.set_num_threads(1)
    assert threading.active_count() == 1, "a fork needs a process of one thread"
    with tempfile.TemporaryDirectory() as folder:
        trials = Trials(seed, Path(folder), subject)
        print(f"An undisturbed run takes {trials.seconds:.1f} s.")
        for name, kinds in KINDS.items():
            for trial, long_count, short_count in kinds if only in (None, name) else ():
                count = short_count if short else round(share * long_count)
                if count and (subject == "ieg" or trial is not not_finite):  # which breaks the step of that method
                    trial(trials, count)
                    print(f"  {trial.__name__}: {sum(trials.counts.values())} trials so far", flush=True)
        return report(trials)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", choices=list(KINDS))
    options.add_argument("--short", action="store_true")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--subject", choices=list(SUBJECTS), default="ieg")
    options.add_argument("--share", type=float, default=1.0)
    given = options.parse_args()
    sys.exit(run_faults(given.only, given.short, given.seed, given.subject, given.share))
