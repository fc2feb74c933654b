# kcast, server and client, in one image:
#
#   docker build --network host --tag kcast .
#   docker run --rm --publish 127.0.0.1:7400:7400/udp --read-only --cap-drop ALL \
#       --security-opt no-new-privileges --stop-timeout 35 kcast
#
# compose.yaml runs a cluster of it. The legacy builder builds it as well as BuildKit does.
# Another base image, with Python 3.11 to 3.13, venv and pip:   --build-arg BASE_IMAGE=python:3.13-slim
# Another package index, or a mirror:                           --build-arg PIP_INDEX_URL=https://...
#
# pip installs what requirements*.lock name, with these hashes, and nothing else. A tag may get another image;
# docs/containers.md says how to name the base image by its digest.

ARG BASE_IMAGE=python:3.12-slim

FROM ${BASE_IMAGE} AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off
WORKDIR /src
# What compiles the native code. The official images have Python's headers, Debian's own Python has not.
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends gcc libc6-dev \
        $(test "$(command -v python3)" != /usr/bin/python3 || echo python3-dev) >/dev/null \
    && rm -rf /var/lib/apt/lists/*
# What kcast needs changes less often than kcast, so it has a layer of its own. What builds its wheel is needed
# in this stage alone.
COPY requirements.lock requirements-build.lock ./
RUN python -m venv --without-pip /opt/kcast \
    && python -m venv /opt/build \
    && python -m pip --python /opt/kcast/bin/python install --no-compile --only-binary :all: \
        --require-hashes -r requirements.lock \
    && /opt/build/bin/python -m pip install --no-compile --only-binary :all: \
        --require-hashes -r requirements-build.lock
COPY . .
# The root file system will be read-only: nothing could be compiled, or found outdated, later.
RUN /opt/build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && ls /wheels/*-abi3-linux_*.whl \
    && python -m pip --python /opt/kcast/bin/python install --no-compile --no-deps --no-index /wheels/*.whl \
    && python -m compileall -q --invalidation-mode unchecked-hash /opt/kcast/lib

FROM ${BASE_IMAGE}
COPY --from=build /opt/kcast /opt/kcast
ENV PATH=/opt/kcast/bin:$PATH
USER 7400:7400
EXPOSE 7400/udp
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["kcast", "health"]
ENTRYPOINT ["kcast"]
CMD ["serve", "--host", "0.0.0.0"]
