#!/bin/sh
# Makes .venv-fuzz: atheris beside the packages of .venv.
set -eu
cd "$(dirname "$0")/.."
[ -f .venv-fuzz/.installed ] && cmp -s requirements/fuzz.lock .venv-fuzz/.installed && exit 0
.venv/bin/python -m venv .venv-fuzz
.venv-fuzz/bin/python -m pip install -q --no-deps --require-hashes -r requirements/fuzz.lock
.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$(.venv-fuzz/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/voxgate.pth"
cp requirements/fuzz.lock .venv-fuzz/.installed
