#!/bin/sh
# Makes the secrets of compose.yaml in deploy/secrets, those that are not there: a key, what signs
# tokens, Grafana's password, and a certificate for localhost to try it with.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
voxgate=${VOXGATE:-../.venv/bin/voxgate}
[ -s secrets/keys.json ] || "$voxgate" keys add first --scope speak --scope tokens \
    --file secrets/keys.json >secrets/key
[ -s secrets/token_secret ] || openssl rand -hex 32 >secrets/token_secret
[ -s secrets/grafana_password ] || openssl rand -hex 16 >secrets/grafana_password
[ -s secrets/tls.key ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -keyout secrets/tls.key -out secrets/tls.pem -days 90 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2>/dev/null
# The containers' users are not this one: they read by group.
chmod 640 secrets/keys.json secrets/token_secret secrets/tls.key secrets/tls.pem secrets/grafana_password
if [ "$(id -u)" = 0 ]; then
    chown 10001 secrets/keys.json secrets/token_secret
    chown 101 secrets/tls.key secrets/tls.pem
    chown 472 secrets/grafana_password
else
    echo "As root the files are given to the containers' users; without, type once:" >&2
    echo "  sudo deploy/secrets.sh" >&2
fi
