# syntax=docker/dockerfile:1.7@sha256:a57df69d0ea827fb7266491f2813635de6f17269be881f696fbfdf2d83dda33e
# Images of Voxgate: `cpu` (the default) and `cuda`. Build from the root of a clone:
#   docker build --target cpu  -t voxgate:cpu  .
#   docker build --target cuda -t voxgate:cuda .
# Nothing runs as root, and nothing but /tmp and /var/lib/voxgate is written:
#   docker run --read-only --tmpfs /tmp:exec --cap-drop ALL --security-opt no-new-privileges \
#     -v voxgate:/var/lib/voxgate -p 127.0.0.1:8080:8080 -e VOXGATE_INSECURE=true voxgate:cpu
# Python packages are pinned to version and hash by requirements/*.lock, the base to its digest.
# What an image is made of: docker run --rm --entrypoint cat voxgate:cpu /usr/share/voxgate/sbom.cdx.json
ARG DEBIAN=debian:12.12-slim@sha256:d5d3f9c23164ea16f31852f95bd5959aad1c5e854332fe00f7b3a20fcc9f635c

FROM ${DEBIAN} AS base
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

FROM base AS build
# Debian stable changes versions for security only, and those fixes are wanted.
# hadolint ignore=DL3008
RUN apt-get update -q \
    && apt-get install -y -q --no-install-recommends python3 python3-venv ca-certificates \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY deploy/image/install.sh deploy/image/
COPY scripts/sbom.py scripts/
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY requirements requirements
COPY gateway gateway
COPY engine engine
COPY training training
COPY bench bench
COPY web web

FROM build AS build-cpu
RUN --mount=type=cache,target=/root/.cache/pip deploy/image/install.sh python cpu

FROM build AS build-cuda
RUN --mount=type=cache,target=/root/.cache/pip deploy/image/install.sh python cuda

FROM base AS run
RUN groupadd --gid 10001 voxgate \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/voxgate --shell /usr/sbin/nologin voxgate \
    && install -d -o 10001 -g 10001 -m 0750 /var/lib/voxgate
ENV PATH=/opt/voxgate/bin:$PATH \
    HOME=/var/lib/voxgate \
    XDG_CACHE_HOME=/var/lib/voxgate/cache \
    TMPDIR=/tmp \
    VOXGATE_HOST=0.0.0.0 \
    VOXGATE_PORT=8080 \
    VOXGATE_LOG_FORMAT=json
WORKDIR /var/lib/voxgate
VOLUME /var/lib/voxgate
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=8s --start-period=180s --retries=3 \
    CMD ["voxgate", "probe", "--ready"]
ENTRYPOINT ["tini", "--", "voxgate"]
CMD ["serve", "--log-level", "info"]

FROM run AS cuda
RUN --mount=type=bind,source=deploy/image/install.sh,target=/tmp/install.sh \
    /tmp/install.sh system cuda
COPY --from=build-cuda /opt/voxgate /opt/voxgate
RUN --mount=type=bind,from=build-cuda,source=/src,target=/tmp/src \
    /tmp/src/deploy/image/install.sh bill cuda
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001

FROM run AS cpu
RUN --mount=type=bind,source=deploy/image/install.sh,target=/tmp/install.sh \
    /tmp/install.sh system cpu
COPY --from=build-cpu /opt/voxgate /opt/voxgate
RUN --mount=type=bind,from=build-cpu,source=/src,target=/tmp/src \
    /tmp/src/deploy/image/install.sh bill cpu
USER 10001:10001
