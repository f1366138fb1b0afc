"""`ray.tune.integration`: callbacks for other libraries, a module each; the rest says that it is not there."""
