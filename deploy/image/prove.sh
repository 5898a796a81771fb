#!/bin/bash
# Proves the image without Docker: the very install steps in a clean Debian root, then the entry point
# there as a user without rights or capabilities, on a root that is mounted read-only; it speaks one
# sentence, passes the health check and drains.
#   sudo deploy/image/prove.sh      about 5 minutes, 6 GB of disk
# Where pip has packages from folders of this machine: PACKAGES="/folder ..."; where Debian comes
# from another mirror: MIRROR=http://...
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "needs root: debootstrap and chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "needs: apt-get install debootstrap" >&2; exit 1; }
root=$(mktemp -d "${TMPDIR:-/var/tmp}/voxgate-image.XXXXXX")
port=${PORT:-18080}
read -ra packages <<<"${PACKAGES:-}"
mounts=()
server=
cleanup() {
    [ -n "$server" ] && kill -TERM "$server" 2>/dev/null && wait "$server" || true
    for ((i = ${#mounts[@]} - 1; i >= 0; i--)); do
        umount -l "${mounts[i]}" || true
    done
    # Were one of them still mounted, what is behind it would not be ours to delete.
    grep -q " $root" /proc/self/mounts || rm -rf --one-file-system "$root"
}
trap cleanup EXIT
say() { printf '== %s\n' "$*" >&2; }
fail() { echo "$*" >&2; exit 1; }
mounted() { # options of mount, then where
    mkdir -p "${*: -1}"
    mount "$@"
    mounts+=("${*: -1}")
}

say "a clean Debian in $root"
chmod 755 "$root"
debootstrap --variant=minbase bookworm "$root" "${MIRROR:-http://deb.debian.org/debian}" >/dev/null
mounted --bind "$root" "$root"
mounted -t proc proc "$root/proc"
mounted --bind -o ro /sys "$root/sys"
mounted -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in "null 3" "zero 5" "random 8" "urandom 9"; do
    mknod -m 0666 "$root/dev/${device% *}" c 1 "${device#* }"
done
ln -s /proc/self/fd "$root/dev/fd"
mounted -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mounted -t devpts devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/authorities.pem"
# Where this machine has packages from, the clean one has them too.
for extra in /etc/pip.conf /etc/xdg/pip /etc/apt/apt.conf.d; do
    [ -e "$extra" ] && mkdir -p "$root$(dirname "$extra")" && cp -a "$extra" "$root$(dirname "$extra")/"
done
for folder in "${packages[@]}"; do
    mounted --bind -o ro "$folder" "$root$folder"
done

# From here on the lines of the Dockerfile.
inside() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive \
        ${PIP_FIND_LINKS:+PIP_FIND_LINKS="$PIP_FIND_LINKS"} PIP_CERT=/etc/authorities.pem "$@"
}
say "build: python3, venv"
inside apt-get update -q >/dev/null
inside apt-get install -y -q --no-install-recommends python3 python3-venv ca-certificates >/dev/null
mkdir -p "$root/src"
# The build context, as .dockerignore leaves it, of the commit.
git -c safe.directory="$PWD" archive HEAD pyproject.toml README.md LICENSE NOTICE \
    requirements gateway engine training bench web deploy/image/install.sh scripts/sbom.py | tar -xf - -C "$root/src"
say "install.sh python cpu"
inside sh -c 'cd /src && deploy/image/install.sh python cpu' | tail -1
say "install.sh system cpu"
inside /src/deploy/image/install.sh system cpu >/dev/null
inside groupadd --gid 10001 voxgate
inside useradd --uid 10001 --gid 10001 --home-dir /var/lib/voxgate --shell /usr/sbin/nologin voxgate
inside install -d -o 10001 -g 10001 -m 0750 /var/lib/voxgate
say "install.sh bill cpu"
inside /src/deploy/image/install.sh bill cpu
inside /opt/voxgate/bin/python -c 'if True:
    import json
    names = {each["purl"].split("@")[0] for each in json.load(open("/usr/share/voxgate/sbom.cdx.json"))["components"]}
    assert {"pkg:pypi/torch", "pkg:deb/debian/libopus0"} <= names
    print(f"{len(names)} packages in its bill of materials")'
rm -rf "$root/src"
du -shx "${packages[@]/#/--exclude=$root}" "$root" | sed 's/\t.*/ in the image/'

say "the root becomes read-only; /tmp and /var/lib/voxgate do not"
mounted -t tmpfs tmpfs "$root/tmp"
mounted -t tmpfs -o uid=10001,gid=10001,mode=0750 tmpfs "$root/var/lib/voxgate"
mount -o remount,ro,bind "$root"
# As --cap-drop ALL --security-opt no-new-privileges.
as_voxgate=(chroot "$root" env -i PATH=/opt/voxgate/bin:/usr/bin:/bin HOME=/var/lib/voxgate
    XDG_CACHE_HOME=/var/lib/voxgate/cache TMPDIR=/tmp LANG=C.UTF-8 VOXGATE_HOST=127.0.0.1
    VOXGATE_PORT="$port" VOXGATE_LOG_FORMAT=json setpriv --reuid 10001 --regid 10001
    --clear-groups --no-new-privs --bounding-set -all --inh-caps -all)
"${as_voxgate[@]}" sh -ec '
    test "$(id -u):$(id -g)" = 10001:10001
    grep -q "^CapBnd:.0000000000000000$" /proc/self/status
    grep -q "^NoNewPrivs:.1$" /proc/self/status
    for place in /opt/voxgate /etc /usr /; do
        ! touch $place/x 2>/dev/null
    done' || fail "the user of the image has rights"
! inside touch /opt/voxgate/x 2>/dev/null || fail "the root can be written"
say "tini -- voxgate serve"
begun=$SECONDS
"${as_voxgate[@]}" tini -s -- voxgate serve --log-level warning &
server=$!
until "${as_voxgate[@]}" voxgate probe --ready >/dev/null 2>&1; do
    kill -0 "$server" || fail "the gateway ended"
    [ $((SECONDS - begun)) -lt 300 ] || fail "not ready after 300 s"
    sleep 1
done
say "ready after $((SECONDS - begun)) s"
for process in $(pgrep -P "$server"); do
    grep -q '^Uid:.10001.10001.10001.10001$' "/proc/$process/status" || fail "not its own user"
done
"${as_voxgate[@]}" voxgate say --url "ws://127.0.0.1:$port" "This image speaks." -o /tmp/hello.ogg
size=$(stat -c %s "$root/tmp/hello.ogg")
[ "$size" -gt 2000 ] || fail "the audio has $size bytes"
kill -TERM "$server"
wait "$server" || fail "it ended with exit code $?"
server=
say "spoken ($size bytes), stopped with exit code 0"
