"""`ray.train.v2.api`: the current generation by its own path."""
