"""`ray.train.v2`: the current generation by its own path."""
