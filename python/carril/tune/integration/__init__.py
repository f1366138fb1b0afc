"""Callbacks for other libraries that report from inside a trial. Each module imports its library when it is used."""
