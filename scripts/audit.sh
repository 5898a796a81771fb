#!/bin/sh
# Known vulnerabilities of the locked packages, by pip-audit, which asks the database of PyPI or, with
# -s osv, of OSV; there is no copy of either to be had offline.
#   scripts/audit.sh [--must] [options of pip-audit]
# LOCKS="dev ..." asks for these alone.
# Exit 0: asked, and nothing known. 1: something is known. Where the database cannot be asked, that is
# said and the exit code is 0, or 3 with --must, as CI has it: a machine without network is no fault of
# the packages.
set -eu
cd "$(dirname "$0")/.."
must=no
[ "${1:-}" != --must ] || { must=yes; shift; }
place=.venv-audit
if ! cmp -s requirements/audit.lock "$place/.installed"; then
    "${PYTHON:-python3}" -m venv "$place"
    "$place/bin/python" -m pip install -q --no-deps --require-hashes -r requirements/audit.lock
    cp requirements/audit.lock "$place/.installed"
fi
known=0
unasked=
for lock in ${LOCKS:-engine-cpu engine-cuda dev}; do
    # Local versions (+cpu) are in no database.
    sed -E 's/^(torch==[0-9.]+)\+cpu/\1/; /--hash/d; s/ *\\$//' "requirements/$lock.lock" >"$place/$lock.txt"
    echo "== $lock.lock" >&2
    "$place/bin/pip-audit" --no-deps --disable-pip --progress-spinner off \
        -r "$place/$lock.txt" "$@" >"$place/$lock.out" 2>"$place/$lock.err" || true
    wanted=$(grep -c '==' "$place/$lock.txt")
    skipped=$(grep -c 'could not be audited' "$place/$lock.out" || true)
    if grep -q '^Found ' "$place/$lock.err"; then
        known=1
        cat "$place/$lock.out"
    elif ! grep -q '^No known vulnerabilities' "$place/$lock.err"; then
        tail -1 "$place/$lock.err" >&2
        unasked="$unasked $lock"
        continue
    fi
    echo "$((wanted - skipped)) of $wanted packages asked for" >&2
    [ "$((skipped * 10))" -lt "$wanted" ] || unasked="$unasked $lock"
done
if [ -n "$unasked" ]; then
    echo "NOT AUDITED:$unasked. The database could not be asked; run it again where pypi.org answers." >&2
    [ "$must" = no ] || [ "$known" = 1 ] || exit 3
fi
exit "$known"
