#!/bin/sh
# make release VERSION=0.2.0: makes a release of what is checked out, up to a commit and a tag. It sends nothing anywhere.
#   IMAGE=no  builds no image, where neither docker nor podman nor buildah works
#   AUDIT=no  goes on although vulnerabilities are known, or none can be looked up
# A tag is signed, and so are the checksums, where git knows a key (user.signingkey).
set -eu

version=${1:-}
fail() {
    echo "release: $1" >&2
    exit 1
}

echo "$version" | grep -qE '^[0-9]+\.[0-9]+\.[0-9]+$' || fail "say which version: make release VERSION=0.2.0"
[ -z "$(git status --porcelain)" ] || fail "commit or remove your changes first: git status"
[ -z "$(git tag --list "v$version")" ] || fail "the tag v$version exists"
entries=$(awk '/^## /{here = $2 == "Unreleased"; next} here' CHANGELOG.md)
lines=$(printf '%s\n' "$entries" | wc -l)
[ -n "$entries" ] || fail 'CHANGELOG.md has nothing under "## Unreleased"'
[ "$lines" -le 80 ] || fail "CHANGELOG.md has $lines lines under \"## Unreleased\"; 80 are the most that a user reads"
case "${IMAGE:-} ${BUILD_OPTIONS:-}" in
"no "* | *BASE=*@sha256:*NODE=*@sha256:*) ;;
*) fail 'name both base images by digest: BUILD_OPTIONS="--build-arg BASE=python:3.11-slim@sha256:... --build-arg NODE=node:24-slim@sha256:..."' ;;
esac

# From here on a failure leaves the checkout as it was.
undo() {
    git checkout --quiet -- .
    rm -rf dist
}
trap undo EXIT
trap 'exit 1' INT TERM

sed -i "s/^## Unreleased$/## Unreleased\n\n## $version ($(date -u +%F))/" CHANGELOG.md
sed -i "s/^version = \".*\"/version = \"$version\"/" pyproject.toml clients/python/pyproject.toml
sed -i "s/^  \"version\": \".*\"/  \"version\": \"$version\"/" clients/typescript/package.json
make --no-print-directory openapi # installs anew as well: the documents name the installed version

rm -rf dist
.venv/bin/python -m hatchling build -d dist
echo "release: using the wheel in an environment without anything else ..."
WHEEL=$(echo "$PWD"/dist/*.whl) .venv/bin/python -m pytest tests/e2e/test_wheel.py
make --no-print-directory sbom
[ "${AUDIT:-}" = no ] || make --no-print-directory audit || fail "AUDIT=no goes on if you have looked at these"
[ "${IMAGE:-}" = no ] || make --no-print-directory image BUILD_OPTIONS="--label version=$version ${BUILD_OPTIONS:-}"

key=$(git config user.signingkey || true)
(cd dist && sha256sum -- * >SHA256SUMS)
[ -z "$key" ] || gpg --local-user "$key" --armor --detach-sign dist/SHA256SUMS
git commit --quiet --all ${key:+--gpg-sign} -m "Release $version"
git tag ${key:+--sign} -a -m "Wicketgate $version" "v$version"
trap - EXIT
echo "release: v$version is committed and tagged${key:+, signed}; dist/ has what to publish. Next: git push --follow-tags"
