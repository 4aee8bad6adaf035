# Two images, of the service and a demo; no test tools:
#   docker build -t wicketgate .                            plain: Python and Wicketgate
#   docker build --target servers -t wicketgate:servers .   with Node (npx) and uv (uvx) besides, for tool servers over stdio
# Any base with Python 3.11 or newer, and venv for building, will do:
#   docker build --build-arg BASE=python:3.12-slim .
ARG BASE=python:3.11-slim
ARG NODE=node:24-slim

FROM ${BASE} AS build
WORKDIR /build
RUN python3 -m venv /opt/wicketgate
COPY requirements/service.lock requirements/service.lock
RUN /opt/wicketgate/bin/pip install --no-cache-dir --require-hashes -r requirements/service.lock
COPY pyproject.toml hatch_build.py README.md LICENSE NOTICE ./
COPY wicketgate wicketgate
COPY app app
COPY routers routers
COPY middleware middleware
RUN /opt/wicketgate/bin/pip install --no-cache-dir --no-deps --no-build-isolation --no-index .

FROM ${BASE} AS plain
COPY --from=build /opt/wicketgate /opt/wicketgate
COPY docker/entrypoint.sh /usr/local/bin/wicketgate-entrypoint
WORKDIR /srv/wicketgate
COPY examples/__init__.py examples/clock.py examples/docker.yaml examples/
COPY examples/shop examples/shop
# The state folder is made here so that a new volume takes over its owner.
RUN useradd --system --user-group --no-create-home --home-dir /var/lib/wicketgate wicketgate \
    && install -d -o wicketgate -g wicketgate -m 0700 /var/lib/wicketgate
USER wicketgate

ENV PATH=/opt/wicketgate/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    WICKETGATE_SERVER__HOST=0.0.0.0 \
    WICKETGATE_AUTH__KEY_FILE=/var/lib/wicketgate/key.json
VOLUME /var/lib/wicketgate
EXPOSE 8080
ENTRYPOINT ["wicketgate-entrypoint"]

FROM ${NODE} AS node

FROM ${BASE} AS uv
RUN python3 -m venv /opt/uv
COPY requirements/servers.lock requirements/servers.lock
RUN /opt/uv/bin/pip install --no-cache-dir --require-hashes -r requirements/servers.lock

FROM plain AS servers
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm
COPY --from=uv /opt/uv/bin/uv /opt/uv/bin/uvx /usr/local/bin/
USER root
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
    && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx \
    && node --version && uv --version
USER wicketgate
# npm and uv keep what they fetch below HOME, which is the volume: the user can write there, and the next start fetches nothing.
ENV HOME=/var/lib/wicketgate

# The last stage is what is built when no target is named.
FROM plain
