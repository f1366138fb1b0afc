"""`ray.air.integrations`: the trackers that carril has."""
