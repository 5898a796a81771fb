#!/bin/sh
# Known vulnerabilities of the locked packages, by pip-audit; it asks PyPI's or OSV's database.
set -eu
cd "$(dirname "$0")/.."
if ! cmp -s requirements/audit.lock .venv-audit/.installed; then
    .venv/bin/python -m venv .venv-audit
    .venv-audit/bin/python -m pip install -q --no-deps --require-hashes -r requirements/audit.lock
    cp requirements/audit.lock .venv-audit/.installed
fi
for lock in engine-cpu dev; do
    # Local versions (+cpu) are in no database.
    sed -E 's/^(torch==[0-9.]+)\+cpu/\1/; /--hash/d; s/ *\\$//' "requirements/$lock.lock" >".venv-audit/$lock.txt"
    echo "== $lock.lock" >&2
    .venv-audit/bin/pip-audit --no-deps --disable-pip --progress-spinner off -r ".venv-audit/$lock.txt" "$@"
done
