#!/bin/sh
# The image's entry point. Without arguments it serves; with arguments it is the command wicketgate, as in
# "docker compose run --rm wicketgate key new --actor owner_1".
set -eu

if [ $# -gt 0 ]; then
    exec wicketgate "$@"
fi

config=${WICKETGATE_CONFIG:-/etc/wicketgate/wicketgate.yaml}
if [ -d "$config" ]; then
    # docker makes a directory where the file that it was to mount does not exist.
    echo "wicketgate: $config is a directory. Write the file that is mounted there, remove the directory that docker made in its place, and start again" >&2
    exit 1
fi
if [ ! -e "$config" ]; then
    echo "wicketgate: no configuration is mounted, so this is the demo. To use yours, mount it: -v ./wicketgate.yaml:$config:ro (docker-compose.yml has the line)" >&2
    config=examples/docker.yaml
fi
exec wicketgate serve --config "$config"
