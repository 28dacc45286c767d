# syntax=docker/dockerfile:1
# docker build --build-arg GYM_COMMIT=$(git rev-parse HEAD) --tag nemo-gym .
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS build
ARG GYM_COMMIT=unknown
RUN python3 -m pip install --no-cache-dir --root-user-action=ignore uv
COPY . /source
RUN GYM_COMMIT=${GYM_COMMIT} UV_NO_CACHE=1 /source/docker/build_tree.sh / "$(command -v python3)"

FROM ${PYTHON_IMAGE}
COPY docker/install_system_packages.sh /tmp/
RUN bash /tmp/install_system_packages.sh && rm /tmp/install_system_packages.sh
COPY --from=build /opt /opt
COPY --from=build /usr/local/bin/gym /usr/local/bin/gym
# Ray unblocks SIGINT in jobs only with this, and Ctrl-C is how a job's servers are ended.
ENV RAY_JOB_STOP_SIGNAL=SIGINT \
    RAY_USAGE_STATS_ENABLED=0
WORKDIR /
CMD ["python3"]
