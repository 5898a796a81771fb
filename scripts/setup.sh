#!/bin/sh
# Makes .venv and installs Voxgate with its pinned speech engine; safe to run again at any time.
#   scripts/setup.sh [--dev]     --dev adds the test and lint tools
set -eu
cd "$(dirname "$0")/.."

# A version manager's shim may be on PATH and still refuse to run, so try each candidate.
for candidate in ${PYTHON:-} python3.11 python3 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1; then
        exec "$candidate" scripts/setup_venv.py "$@"
    fi
done
echo "Voxgate's pinned engine needs Python 3.11, and none was found." >&2
echo "  Debian 12: sudo apt-get install python3 python3-venv     Ubuntu: sudo apt-get install python3.11 python3.11-venv" >&2
echo "  Elsewhere, name one:  make setup PYTHON=/path/to/python3.11" >&2
exit 1
