"""`ray.tune.search.concurrency_limiter`."""

from carril.tune.search.concurrency_limiter import ConcurrencyLimiter

__all__ = ["ConcurrencyLimiter"]
