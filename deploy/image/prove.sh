#!/bin/bash
# Proves the image without Docker: the very install steps in a clean Debian root, then `voxgate serve`
# there as a user without rights, on a root that is mounted read-only, and one sentence.
#   sudo deploy/image/prove.sh      about 5 minutes, 6 GB of disk
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "needs root: debootstrap and chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "needs: apt-get install debootstrap" >&2; exit 1; }
root=$(mktemp -d "${TMPDIR:-/var/tmp}/voxgate-image.XXXXXX")
port=${PORT:-18080}
chmod 755 "$root"
cleanup() {
    [ -n "${server:-}" ] && kill -TERM "$server" 2>/dev/null && wait "$server" || true
    for mount in "$root"/opt/wheels "$root"/opt/pypi "$root"/opt/pypi-more "$root"/sys "$root"/dev/shm "$root"/dev "$root"/proc "$root"/tmp "$root"/var/lib/voxgate "$root"; do
        mountpoint -q "$mount" && umount -l "$mount" || true
    done
    rm -rf --one-file-system "$root"
}
trap cleanup EXIT
say() { printf '== %s\n' "$*" >&2; }

say "a clean Debian in $root"
debootstrap --variant=minbase bookworm "$root" "${MIRROR:-http://deb.debian.org/debian}" >/dev/null
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind -o ro /sys "$root/sys"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in "null 3" "zero 5" "random 8" "urandom 9"; do
    mknod -m 0666 "$root/dev/${device% *}" c 1 "${device#* }"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/authorities.pem"
# Where this machine has packages from (mirrors, authorities, wheels), the clean one has them too.
for extra in /etc/pip.conf /etc/xdg/pip /etc/apt/apt.conf.d; do
    [ -e "$extra" ] && mkdir -p "$root$(dirname "$extra")" && cp -a "$extra" "$root$(dirname "$extra")/"
done
for wheels in /opt/wheels /opt/pypi /opt/pypi-more; do
    [ -d "$wheels" ] && mkdir -p "$root$wheels" && mount --bind -o ro "$wheels" "$root$wheels"
done

# From here on the lines of the Dockerfile.
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 ${PIP_FIND_LINKS:+PIP_FIND_LINKS=$PIP_FIND_LINKS} PIP_CERT=/etc/authorities.pem "$@"; }
say "build: python3, venv"
inside apt-get update -q >/dev/null
inside apt-get install -y -q --no-install-recommends python3 python3-venv ca-certificates >/dev/null
mkdir -p "$root/src"
# The build context, as .dockerignore leaves it, of the commit.
git -c safe.directory="$PWD" archive HEAD pyproject.toml README.md LICENSE NOTICE \
    requirements gateway engine training bench web deploy/image/install.sh | tar -xf - -C "$root/src"
say "install.sh python cpu"
inside sh -c 'cd /src && deploy/image/install.sh python cpu' | tail -1
say "install.sh system cpu"
inside /src/deploy/image/install.sh system cpu >/dev/null
inside groupadd --gid 10001 voxgate
inside useradd --uid 10001 --gid 10001 --home-dir /var/lib/voxgate --shell /usr/sbin/nologin voxgate
inside install -d -o 10001 -g 10001 -m 0750 /var/lib/voxgate
rm -rf "$root/src"
du -shx --exclude="$root/opt/pypi*" --exclude="$root/opt/wheels" "$root" | sed 's/\t.*/ in the image/'

say "the root becomes read-only; /tmp and /var/lib/voxgate do not"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o uid=10001,gid=10001,mode=0750 tmpfs "$root/var/lib/voxgate"
mount -o remount,ro,bind "$root"
as_voxgate() {
    chroot --userspec=10001:10001 "$root" env -i PATH=/opt/voxgate/bin:/usr/bin:/bin \
        HOME=/var/lib/voxgate XDG_CACHE_HOME=/var/lib/voxgate/cache TMPDIR=/tmp LANG=C.UTF-8 \
        VOXGATE_HOST=127.0.0.1 VOXGATE_PORT="$port" VOXGATE_LOG_FORMAT=json "$@"
}
as_voxgate sh -c 'test "$(id -u)" = 10001 && ! touch /opt/voxgate/x 2>/dev/null && ! touch /etc/x 2>/dev/null'
say "voxgate serve"
begun=$SECONDS
as_voxgate voxgate serve --log-level warning &
server=$!
until as_voxgate voxgate probe --ready >/dev/null 2>&1; do
    kill -0 "$server" || { echo "the gateway ended" >&2; exit 1; }
    [ $((SECONDS - begun)) -lt 300 ] || { echo "not ready after 300 s" >&2; exit 1; }
    sleep 1
done
say "ready after $((SECONDS - begun)) s"
as_voxgate voxgate say --url "ws://127.0.0.1:$port" "This image speaks." -o /tmp/hello.ogg
size=$(stat -c %s "$root/tmp/hello.ogg")
[ "$size" -gt 2000 ] || { echo "the audio has $size bytes" >&2; exit 1; }
kill -TERM "$server"
wait "$server"
server=
say "spoken ($size bytes), stopped with exit code 0"
