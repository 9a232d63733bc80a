#!/usr/bin/env bash
# environment.sh PYTHON EXTRAS SIZE: makes .venv with these extras of the project, in the versions of constraints.txt, and
# names each package as it comes, so that minutes without a sign of life do not look like a hang.
set -euo pipefail
"$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Tidegauge needs Python 3.11 or newer; say which with: make PYTHON=python3.12 .venv" >&2
    exit 1
}
echo "Making .venv ($3)"
"$1" -m venv .venv
.venv/bin/python -m pip install --disable-pip-version-check --progress-bar off -e ".[$2]" -c constraints.txt |
    sed --unbuffered -n -E \
        -e 's/^Collecting ([A-Za-z0-9._-]+).*/  \1/p' \
        -e 's/^Installing collected packages.*/Installing them/p'
echo "Made .venv"
