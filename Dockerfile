# syntax=docker/dockerfile:1
# docker build -t effective-load:0.1.0 .
# The image runs as nobody, with a read-only root file system and without a shell being needed.
# A release is built from the digest that this tag stands for on that day: .github/workflows/release.yaml.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
# What a cluster does not use, its image need not carry: --build-arg EXTRAS=zookeeper, or EXTRAS= for none.
ARG EXTRAS="notify zookeeper"
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements requirements
# What builds the package, at the versions and hashes of the development lock.
# hadolint ignore=SC2086
RUN awk '/^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/ {taken = 1} taken; !/\\$/ {taken = 0}' \
        requirements/dev.lock > requirements/build.lock \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --only-binary=:all: -r requirements/build.lock \
    && python -m venv /opt/effective-load \
    && locks="-r requirements/runtime.lock" \
    && for extra in ${EXTRAS}; do locks="${locks} -r requirements/${extra}.lock"; done \
    && /opt/effective-load/bin/pip install --require-hashes --only-binary=:all: ${locks}
COPY pyproject.toml README.md LICENSE ./
COPY adapter adapter
COPY manifests manifests
# Compiled here, for the running image cannot write; and without pip, which it does not need.
RUN /opt/build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /wheels . \
    && /opt/effective-load/bin/pip install --no-deps /wheels/*.whl \
    && /opt/effective-load/bin/pip uninstall --yes pip \
    && python -m compileall -q -j 0 /opt/effective-load/lib

# docker build --target sbom --output type=local,dest=. . : what is in the image, as CycloneDX.
FROM build AS inventory
RUN python -m venv /opt/release \
    && /opt/release/bin/pip install --require-hashes --only-binary=:all: -r requirements/release.lock \
    && /opt/release/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
        --output-format JSON --output-file /sbom.cdx.json /opt/effective-load

FROM scratch AS sbom
COPY --from=inventory /sbom.cdx.json /

FROM ${BASE} AS image
LABEL org.opencontainers.image.title="effective-load" \
      org.opencontainers.image.description="Lets the stock HorizontalPodAutoscaler scale on effective load" \
      org.opencontainers.image.licenses="Apache-2.0"
# glibc returns freed blocks of 128 KiB and more to the system at once: the buffers of a connection (256 KiB) would else
# leave holes in the heap, 125 of 250 MiB after minutes of reconnections.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1 MALLOC_MMAP_THRESHOLD_=131072
COPY --from=build /opt/effective-load /opt/effective-load
USER 65534:65534
EXPOSE 6443 8080
ENTRYPOINT ["/opt/effective-load/bin/effective-load"]
CMD ["serve"]
