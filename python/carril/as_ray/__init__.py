"""The name `ray` standing for carril: what `carril as-ray -- COMMAND` puts in front of a command's paths.

`path/` goes to the front of PYTHONPATH and holds the package `ray` alone; `bin/` goes to the front of PATH and holds
the command `ray`; `bash_env.sh` puts both first again in shells that change them. The modules beside this file are
what the package `ray` needs beyond carril itself: `check` (another Ray in the way), `missing` (what is not there
yet), `legacy` and `session` (the configurations and the in-loop functions of Ray's older generation).
"""
