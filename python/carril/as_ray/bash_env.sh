# What every shell under `carril as-ray` reads first, as BASH_ENV (bash) and ENV (interactive POSIX shells).
#
# A login shell reads the profile before this file, so a PATH or PYTHONPATH that the profile has reset is put right again
# here. A non-bash login shell (`sh -lc`) reads only its profile: there, the names survive as far as the profile lets them.
# Silent, and safe under `set -eu`: pyenv's shims and many others are bash scripts whose output is read by programs.

if [ -n "${CARRIL_AS_RAY_PATH-}" ] && [ -n "${CARRIL_AS_RAY_BIN-}" ]; then
    # Removed wherever they stand before they are put first, so that nested shells do not make the lists longer.
    _carril_list=":${PATH-}:"
    while :; do
        case "$_carril_list" in
            *":$CARRIL_AS_RAY_BIN:"*)
                _carril_list="${_carril_list%%":$CARRIL_AS_RAY_BIN:"*}:${_carril_list#*":$CARRIL_AS_RAY_BIN:"}" ;;
            *) break ;;
        esac
    done
    _carril_list="${_carril_list#:}"
    _carril_list="${_carril_list%:}"
    PATH="$CARRIL_AS_RAY_BIN${_carril_list:+:$_carril_list}"

    _carril_list=":${PYTHONPATH-}:"
    while :; do
        case "$_carril_list" in
            *":$CARRIL_AS_RAY_PATH:"*)
                _carril_list="${_carril_list%%":$CARRIL_AS_RAY_PATH:"*}:${_carril_list#*":$CARRIL_AS_RAY_PATH:"}" ;;
            *) break ;;
        esac
    done
    _carril_list="${_carril_list#:}"
    _carril_list="${_carril_list%:}"
    PYTHONPATH="$CARRIL_AS_RAY_PATH${_carril_list:+:$_carril_list}"

    unset _carril_list
    export PATH PYTHONPATH

    # An environment that is activated later in this shell puts its own directory in front, with its own `ray` perhaps.
    # A function goes before every directory.
    ray() {
        sh "$CARRIL_AS_RAY_BIN/ray" "$@"
    }
fi

if [ -n "${CARRIL_AS_RAY_BASH_ENV-}" ] && [ -r "${CARRIL_AS_RAY_BASH_ENV-}" ]; then
    . "$CARRIL_AS_RAY_BASH_ENV"
fi
