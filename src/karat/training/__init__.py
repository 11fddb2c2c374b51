"""What surrounds the algorithm: schedules, weight averaging, evaluation, checkpoints, metrics, progress."""
