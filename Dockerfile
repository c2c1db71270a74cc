# syntax=docker/dockerfile:1
# docker build -t effective-load:0.1.0 .
# The image runs as nobody, with a read-only root file system and without a shell being needed.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements/runtime.lock requirements/dev.lock requirements/
# What builds the package, at the versions and hashes of the development lock.
RUN awk '/^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/ {taken = 1} taken; !/\\$/ {taken = 0}' \
        requirements/dev.lock > requirements/build.lock \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --only-binary=:all: -r requirements/build.lock \
    && python -m venv /opt/effective-load \
    && /opt/effective-load/bin/pip install --require-hashes --only-binary=:all: -r requirements/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY adapter adapter
# Compiled here, for the running image cannot write; and without pip, which it does not need.
RUN /opt/build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /wheels . \
    && /opt/effective-load/bin/pip install --no-deps /wheels/*.whl \
    && /opt/effective-load/bin/pip uninstall --yes pip \
    && python -m compileall -q -j 0 /opt/effective-load/lib

FROM ${BASE}
LABEL org.opencontainers.image.title="effective-load" \
      org.opencontainers.image.description="Lets the stock HorizontalPodAutoscaler scale on effective load" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1
COPY --from=build /opt/effective-load /opt/effective-load
USER 65534:65534
EXPOSE 6443 8080
ENTRYPOINT ["/opt/effective-load/bin/effective-load"]
CMD ["serve"]
