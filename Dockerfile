# The broker as a container: non-root, runs on a read-only root, no build tools in what ships.
#
# docs/how-to/production.md, "In a container", shows how to run it. Its Broker resource keeps the store in
# /srv/oauthbroker/store and the key in /srv/oauthbroker/keys. The health check asks the port that it names.
#
# Three mounts on purpose: what people write (read-only), what the broker keeps (sealed), and the key that opens it.
# Whoever copies the store must not get the key along. tests/test_dockerfile.py replays these steps without an engine.
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS build
WORKDIR /src
COPY requirements/build.txt requirements/runtime.txt requirements/postgres.txt requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements/build.txt
RUN python -m venv --without-pip /opt/oauthbroker \
    && pip --python /opt/oauthbroker/bin/python install --no-cache-dir --no-deps --require-hashes -r requirements/runtime.txt \
        -r requirements/postgres.txt
COPY pyproject.toml README.md LICENSE ./
COPY docs/errors.md docs/
COPY deploy/monitoring/ deploy/monitoring/
COPY oauthbroker/ oauthbroker/
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
    && pip --python /opt/oauthbroker/bin/python install --no-cache-dir --no-deps --no-index --find-links dist oauthbroker

FROM python:${PYTHON_VERSION}-slim
RUN python -m pip uninstall --yes --quiet pip setuptools wheel
COPY --from=build /opt/oauthbroker /opt/oauthbroker
ENV PATH=/opt/oauthbroker/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    OAUTHBROKER_KEY_FILE=/srv/oauthbroker/keys/broker.kek
WORKDIR /srv/oauthbroker
RUN mkdir config store keys && chown 10001:10001 store keys && chmod 0700 store keys
USER 10001:10001
EXPOSE 8420
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["oauthbroker", "health", "--alive", "--config", "config"]
ENTRYPOINT ["oauthbroker"]
CMD ["serve", "--config", "config"]
