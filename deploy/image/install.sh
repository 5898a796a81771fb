#!/bin/sh
# Installs Voxgate as the images have it. Run by Dockerfile, and by prove.sh in a clean root.
#   install.sh system cpu|cuda    Debian packages of the running image
#   install.sh python cpu|cuda    the environment in /opt/voxgate; sources in the current folder
#   install.sh bill cpu|cuda      what all of it is made of, as CycloneDX
set -eu
PREFIX=/opt/voxgate
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

system() {
    packages="python3 libopus0 libnuma1 libmp3lame0 libvo-aacenc0 libflac12 ca-certificates tini"
    # The CPU build compiles its model once, at the first start.
    case $1 in
        cpu) packages="$packages g++ python3-dev" ;;
        cuda) packages="$packages gcc libc6-dev python3-dev" ;;
    esac
    apt-get update -q
    # shellcheck disable=SC2086
    apt-get install -y -q --no-install-recommends $packages
    rm -rf /var/lib/apt/lists/*
}

python() {
    lock=requirements/engine-$1.lock
    python3 -m venv "$PREFIX"
    pip="$PREFIX/bin/python -m pip install --no-cache-dir --no-deps"
    # torch for the CPU comes from an index of its own, whose files the lock cannot hash.
    torch=$(grep -E '^torch==' "$lock" | tr -d ' \\')
    case $torch in
        *+cpu)
            $pip "$torch" || $pip "$torch" --index-url https://download.pytorch.org/whl/cpu
            grep -vE '^torch==' "$lock" >/tmp/locked.txt
            ;;
        *) cp "$lock" /tmp/locked.txt ;;
    esac
    $pip --require-hashes -r /tmp/locked.txt
    # What builds the package itself has a hash too.
    sed -n '/^setuptools==/,/--hash/p' requirements/dev.lock >/tmp/build.txt
    $pip --require-hashes -r /tmp/build.txt
    $pip --no-build-isolation .
    "$PREFIX/bin/python" -m pip uninstall -y -q pip
    "$PREFIX/bin/voxgate" --version
}

bill() {
    cd "$(dirname "$0")/../.."
    mkdir -p /usr/share/voxgate
    "$PREFIX/bin/python" scripts/sbom.py --target "$1" --debian >/usr/share/voxgate/sbom.cdx.json
}

"$@"
