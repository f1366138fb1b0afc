"""The name `ray` standing for carril: what `carril as-ray -- COMMAND` puts in front of a command's paths.

`path/` goes to the front of PYTHONPATH and holds the package `ray` alone; `bin/` goes to the front of PATH and holds
the command `ray`; `bash_env.sh` puts both first again in shells that change them. The package is made by `finder` from
the table `names`. `absent` has what carril does not have of Ray, with what to use instead, `generations` which Ray had
what, `missing` the errors that say so, and `check` notices another Ray in the way. `core`, `constants`, `block`,
`exceptions`, `legacy`, `session` and `older_tune` are the names that are not carril's own under another name.
"""
