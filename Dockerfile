# The service alone: no demo servers, no test tools. Configure it with a mounted wicketgate.yaml.
FROM python:3.11-slim

WORKDIR /srv/wicketgate
COPY requirements/service.lock requirements/service.lock
RUN pip install --no-cache-dir --require-hashes -r requirements/service.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY wicketgate wicketgate
COPY app app
COPY routers routers
COPY middleware middleware
RUN pip install --no-cache-dir --no-deps --no-build-isolation --no-index . \
    && useradd --system --create-home wicketgate
USER wicketgate

EXPOSE 8080
# Listening on every address needs auth.keys in the configuration; without them it does not start.
ENTRYPOINT ["wicketgate"]
CMD ["serve", "--config", "/etc/wicketgate/wicketgate.yaml", "--host", "0.0.0.0"]
