# kcast, server and client, in one image:
#
#   docker build --network host --tag kcast .
#   docker run --rm --publish 127.0.0.1:7400:7400/udp --read-only --cap-drop ALL \
#       --security-opt no-new-privileges --stop-timeout 35 kcast
#
# compose.yaml runs a cluster of it. The legacy builder builds it as well as BuildKit does.
# Another base image, with Python 3.11 or newer, venv and pip:  --build-arg BASE_IMAGE=python:3.13-slim
# Another package index, or a mirror:                           --build-arg PIP_INDEX_URL=https://...

ARG BASE_IMAGE=python:3.12-slim

FROM ${BASE_IMAGE} AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off
WORKDIR /src
# What kcast needs changes less often than kcast, so it has a layer of its own.
COPY pyproject.toml constraints.txt ./
RUN python -m venv --without-pip /opt/kcast \
    && python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
        print(*project['dependencies'], sep='\n')" > requirements.txt \
    && python -m pip --python /opt/kcast/bin/python install --no-compile \
        -c constraints.txt -r requirements.txt
COPY . .
# The root file system will be read-only: nothing could be compiled, or found outdated, later.
RUN python -m pip --python /opt/kcast/bin/python install --no-compile --no-deps . \
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
