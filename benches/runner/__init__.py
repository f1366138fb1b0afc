"""The parts of `benches/run.py`: the rivals' environments, timed processes, the measures and their bars, the tables."""
