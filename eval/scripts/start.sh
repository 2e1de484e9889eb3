# shellcheck shell=bash
# Sourced by the commands beside it: starts the bootstrap with the first Python that really starts.
#
# Not while the shell is traced: a trace goes to screens and logs, and what these commands are given may hold
# secrets. That is found out here, before anything is read.
#
# A name on PATH proves nothing (a version manager's shim can exist for a Python that is not there), so each
# candidate is executed. Which Python Assay then *works* with is decided by eval/assay/bootstrap.py; this file
# only needs one that can read it. The repository's own environment comes first, so that a repeat run is quick.

if [[ $- == *x* || -n "${BASH_XTRACEFD:-}" ]]; then
    { set +x; } 2>/dev/null
    {
        echo "assay: error: the shell is traced (bash -x, set -x, SHELLOPTS with xtrace, or BASH_XTRACEFD)"
        echo "  why:  a trace writes out what a command reads, and the key of an endpoint may be in it"
        echo "  next: run it without bash -x, after: set +x; export -n SHELLOPTS; unset BASH_XTRACEFD"
    } >&2
    exit 2
fi

start() {
    local root names candidate
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
    names=(python3 python3.13 python3.12 python3.11 python3.10 python)
    # Through descriptor 3, so that the command keeps the caller's standard input.
    while read -r -u 3 candidate; do
        if [[ -n "$candidate" ]] && starts "$candidate"; then
            exec "$candidate" -I -S "$root/eval/assay/bootstrap.py" "$@" 3<&-
        fi
    done 3< <(
        printf '%s\n' "$root/.venv/bin/python" "${ASSAY_PYTHON:-}"
        type -aP "${names[@]}" || true
        printf '%s\n' "${PYENV_ROOT:-${HOME:-/nonexistent}/.pyenv}"/versions/*/bin/python3
    )
    {
        echo "assay: error: no Python that starts was found (3.7 or later reads the bootstrap)"
        echo "  why:  tried ${names[*]} on PATH, ASSAY_PYTHON, and pyenv's versions"
        echo "  next: install Python 3.11, 3.12 or 3.13 with its headers (Debian: apt-get install python3-dev python3-venv)"
    } >&2
    exit 3
}

starts() {
    "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 7))' </dev/null >/dev/null 2>&1
}
