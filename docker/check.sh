#!/bin/sh
# make image-check: builds the image without a container daemon, and starts it twice with one volume.
#
# Needs root, buildah, curl, ss, and without BASE also debootstrap; all are Debian packages.
#   BASE           an image with Python to build from; without it a fresh Debian root stands in for python:3.11-slim
#   BUILD_OPTIONS  more for "buildah bud", such as -v /etc/pip.conf:/etc/pip.conf:ro
#   PORT           a free port of this machine: chroot isolation shares its network (default 18080)
set -eu

port=${PORT:-18080}
image=localhost/wicketgate-check
work=$(mktemp -d /var/tmp/wicketgate-check.XXXXXX)
container=
service=

clean_up() {
    [ -z "$service" ] || kill "$service" 2>/dev/null || true
    [ -z "$container" ] || buildah rm "$container" >/dev/null
    rm -rf "$work"
}
trap clean_up EXIT

fail() {
    echo "image-check: $1" >&2
    cat "$work"/*.log >&2
    exit 1
}

# The base.
if [ -z "${BASE:-}" ]; then
    BASE=localhost/wicketgate-check-base
    if ! buildah inspect --type image "$BASE" >/dev/null 2>&1; then
        debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,tzdata bookworm "$work/root" >"$work/debootstrap.log"
        container=$(buildah from scratch)
        buildah add -q "$container" "$work/root" / >/dev/null
        buildah commit -q "$container" "$BASE" >/dev/null
        buildah rm "$container" >/dev/null
        container=
    fi
fi

# The image, and a volume that the image's user owns, as a volume of docker's would be.
# shellcheck disable=SC2086
buildah bud --isolation chroot --build-arg BASE="$BASE" ${BUILD_OPTIONS:-} -t "$image" . >"$work/build.log" 2>&1 || fail "the build failed"
container=$(buildah from "$image")
mkdir -m 0700 "$work/state"
chown "$(buildah run --isolation chroot "$container" -- sh -c 'echo "$(id -u):$(id -g)"')" "$work/state"

start() {
    buildah run --isolation chroot --env WICKETGATE_SERVER__PORT="$port" -v "$work/state:/var/lib/wicketgate" \
        "$container" -- wicketgate-entrypoint >"$work/$1.log" 2>&1 &
    started=$!
    for _ in $(seq 300); do
        grep -qs 'ready on' "$work/$1.log" && break
        sleep 0.1
    done
    # The process of the service itself, by the port that it holds: buildah would not hand a signal on to it.
    service=$(ss -Hltnp "sport = :$port" | sed -n 's/.*pid=\([0-9]*\).*/\1/p')
    [ -n "$service" ] || fail "the $1 start does not serve"
}

stop() {
    kill "$service"
    service=
    wait "$started" || fail "the $1 start did not end well"
}

ask() {
    curl -sS -o "$work/answer.log" -w '%{http_code}' "http://127.0.0.1:$port/engine/chat" -H "Authorization: Bearer $key" \
        -H 'Content-Type: application/json' \
        -d '{"messages":[{"role":"user","content":"What time is it in Tokyo?"}],"metadata":{"correlation_id":"check"}}'
}

start first
key=$(sed -n 's/.*shown only now: //p' "$work/first.log")
[ -n "$key" ] || fail "the first start shows no key"
[ "$(grep -c "$key" "$work/first.log")" = 1 ] || fail "the key is shown more than once"
[ "$(ask)" = 200 ] && grep -q '+09:00' "$work/answer.log" || fail "the demo does not answer"
healthcheck=$(sed -n 's/.*"-c", "\(.*\)"\]$/\1/p' docker-compose.yml | sed "s/:8080/:$port/")
buildah run --isolation chroot "$container" -- python3 -c "$healthcheck" || fail "the health check of docker-compose.yml fails"
stop first

start second
! grep -q 'wg_local_' "$work/second.log" || fail "the second start shows a key"
[ "$(ask)" = 200 ] || fail "the key of the first start does not work at the second"
key=wg_local_wrong
[ "$(ask)" = 401 ] || fail "a wrong key is let in"
stop second

ls -l "$work/state"
grep -v '^{' "$work/first.log"
echo "image-check: built from $BASE and started twice; the key of the first start works at the second"
