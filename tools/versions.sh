#!/usr/bin/env bash
# Runs the fast suite on every supported Python that this machine has: versions.sh [PYTEST ARGUMENTS]
set -euo pipefail

find_python() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1."*"/bin/python$1"; do
        # A shim of pyenv may stand for a version that is not selected, so it has to run.
        if "$candidate" -c '' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
}

failed=()
for version in 3.11 3.12 3.13; do
    python=$(find_python "$version")
    if [ -z "$python" ]; then
        printf '== Python %s: not installed here, skipped\n' "$version"
        continue
    fi
    printf '== Python %s\n' "$version"
    make --no-print-directory test PYTHON="$python" VENV=".venv-$version" ARGS="$*" || failed+=("$version")
done
if [ ${#failed[@]} -gt 0 ]; then
    printf '== failed on Python %s\n' "${failed[*]}"
    exit 1
fi
