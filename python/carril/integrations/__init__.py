"""Callbacks and helpers for trackers of experiments: MLflow and Weights & Biases.

Each is a module of its own, and imports its library only when it is used: neither is a dependency of carril.
"""
