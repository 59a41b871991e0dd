#!/usr/bin/env bash
# Makes the virtual environment of this checkout: environment.sh PYTHON VENV
#
# Needs nothing but a Python of at least 3.11. uv is put into the environment by pip and does the
# installing; where uv cannot (an index that only pip's own configuration knows, for example), pip does.
set -euo pipefail

python=$1
venv=$2
constraints=constraints.txt
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say() { printf 'headway: %s\n' "$*" >&2; }

command -v "$python" >/dev/null || {
    say "no $python found; name another with: make PYTHON=/path/to/python3 ..."
    exit 1
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    say "$python is $("$python" --version 2>&1); Headway needs Python 3.11 or newer."
    say "Name another with: make PYTHON=python3.12 ..."
    exit 1
}

if [ ! -x "$venv/bin/python" ]; then
    say "making $venv"
    if ! "$python" -m venv "$venv" >"$log" 2>&1; then
        # Debian ships Python without ensurepip; a pip of the system can then do the first step.
        rm -rf "$venv"
        if "$python" -m pip --version >/dev/null 2>&1; then
            "$python" -m venv --without-pip "$venv"
            "$python" -m pip --python "$venv/bin/python" install --quiet pip
        else
            cat "$log" >&2
            say "$python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"
            exit 1
        fi
    fi
fi

export PIP_DISABLE_PIP_VERSION_CHECK=1
pip=("$venv/bin/python" -m pip install --quiet)
what=(--editable '.[import,postgres,ui]' --group dev)

install_by_uv() {
    "${pip[@]}" --constraint "$constraints" uv || return 1
    # The certificates of the system, as pip uses them; a registry that does not answer is given up soon.
    UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-60}" \
        "$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" \
        --constraint "$constraints" --build-constraints "$constraints" "${what[@]}"
}

install_by_pip() {
    # Dependency groups need a pip of 2025 or newer.
    "${pip[@]}" --constraint "$constraints" --upgrade pip &&
        PIP_CONSTRAINT="$constraints" "${pip[@]}" "${what[@]}"
}

say "installing into $venv"
if ! install_by_uv >"$log" 2>&1; then
    say "uv could not install; trying pip. It said:"
    tail -n 5 "$log" >&2
    install_by_pip
fi
