#!/bin/sh
# Makes the secrets of a deployment, each once, and prints the key of the first caller, which is kept nowhere:
#   sh deploy/secrets.sh                                       writes deploy/.env, which compose.yml reads
#   sh deploy/secrets.sh deploy/kubernetes/overlays/try        the same for that overlay
# A file that is there is left alone. Needs openssl.
set -eu

folder=${1:-$(dirname "$0")}
file=$folder/.env
[ ! -e "$file" ] || { echo "secrets: $file is there; remove it to make all secrets anew" >&2; exit 1; }

random() {
    openssl rand -hex 32
}
digest() {
    printf %s "$1" | openssl dgst -sha256 | sed 's/.* //'
}

key=wg_first_$(random)
metrics_key=wg_metrics_$(random)
umask 077
cat >"$file.part" <<END
REDIS_PASSWORD=$(random)
POSTGRES_PASSWORD=$(random)
GRAFANA_PASSWORD=$(random)
SEAL_KEY=$(random)
AUDIT_KEY=$(random)
FIRST_KEY_SHA256=$(digest "$key")
METRICS_KEY=$metrics_key
METRICS_KEY_SHA256=$(digest "$metrics_key")
END
mv "$file.part" "$file"
echo "secrets: $file"
echo "Key, shown only now: $key"
