#!/bin/sh
# make image: builds both images with docker, podman or buildah, the first of them that works here.
#   BUILD_OPTIONS  more for the build, such as --build-arg BASE=python:3.12-slim
set -eu

if docker info >/dev/null 2>&1; then # the program alone, without its daemon, builds nothing
    build="docker build"
elif podman info >/dev/null 2>&1; then
    build="podman build"
elif buildah info >/dev/null 2>&1; then
    build="buildah bud"
else
    echo "image: this needs docker with a running daemon, podman or buildah, and none of them works here" >&2
    exit 1
fi

# shellcheck disable=SC2086
for image in plain:latest servers:servers; do
    $build ${BUILD_OPTIONS:-} --target "${image%:*}" -t "wicketgate:${image#*:}" .
done
echo "image: wicketgate:latest (plain) and wicketgate:servers (with Node and uv), built by ${build%% *}"
