"""What a run needs in memory: reckoned from the network, the batch and the rows, and compared with what is free."""

import pytest

from karat.data.settings import DataSettings
from karat.settings.config import Config, TrainingSettings
from karat.training import memory
from karat.training.memory import free_memory, memory_warning, needed_memory, numbers_of_layers
from karat.training.tasks import task_of
from karat.training.trainer import Trainer


def trainer(method="supervised", batch_size=10):
    training = TrainingSettings(steps=3, batch_size=batch_size, device="cpu")
    config = Config(method, data=DataSettings("digits", trusted_per_class=2, limit=80), training=training)
    return Trainer(config, task_of(config))


def test_a_larger_batch_and_a_method_of_more_passes_need_more():
    """Only what layers return grows with the batch: 4 bytes, forward and back, for each of 10 more images."""
    one, two = needed_memory(trainer()), needed_memory(trainer(batch_size=20))
    assert two - one == 10 * 2 * 4 * numbers_of_layers("fast", (1, 12, 12), 10)
    assert needed_memory(trainer("ieg")) > one
    # 60 of the 80 digits are noisy: logits of 10 classes, 14 times, and 256 features, ten times
    assert needed_memory(trainer("karat")) >= one + 4 * 60 * (14 * 10 + 10 * 256)


def test_a_run_that_does_not_fit_is_told_in_a_sentence(monkeypatch):
    run = trainer()
    for free, said in ((None, 0), (2**50, 0), (1000, 1)):
        monkeypatch.setattr(memory, "free_memory", lambda free=free: free)
        assert len(memory_warning(run)) == said
    (sentence,) = memory_warning(run)
    assert "0.0 GB are free" in sentence
    assert "--data.limit N" in sentence


@pytest.mark.parametrize(
    ("limit", "current", "expected"), [(None, None, 2048), ("max", "5", 2048), ("1500", "500", 1000)]
)
def test_free_is_what_machine_and_container_leave(tmp_path, limit, current, expected):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2 kB\n")
    if limit is not None:
        (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/memory.max").write_text(limit)
        (tmp_path / "sys/fs/cgroup/memory.current").write_text(current)
    assert free_memory(tmp_path) == expected
    assert free_memory(tmp_path / "elsewhere") is None
