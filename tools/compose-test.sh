#!/usr/bin/env bash
# Try docker-compose.yml for real: build the images, start the cluster, break it (tests/compose).
#
# Where no Docker engine runs, it is installed and started on Debian as root. Where it can't be, or its containers can't
# be used from here, this says that it skips, and why, and ends with 0. An image that can't be built although the
# package indexes answer is a failure, and so is a test that fails.
#
#   SETUP_SECONDS      what engine and images may take in all (900); a machine that needs longer skips
#   TIDEGAUGE_COMPOSE  the command to use, else "docker compose", else docker-compose
#   BASE_IMAGE         the image that all of ours begin with, else the Dockerfile's, else one made here
#
# Words after the name go to pytest. The engine that was started here is stopped at the end; images stay, so that the
# next run needs no building: what did not change is not made again.
set -euo pipefail
cd "$(dirname "$0")/.."
setup_seconds=${SETUP_SECONDS:-900}
stock=python:3.11-slim-bookworm
work=$(mktemp -d)
started=""
exec 3>&2 # where we speak, whatever is redirected

tell() { echo "compose-test, $SECONDS s: $*" >&3; }
skip() { echo "SKIPPED compose-test: $1" >&3; exit 0; }
last_line() { grep -v '^[[:space:]]*$' "$1" | tail -n 1; }
# Runs a program of the set-up, at most for what is left of its time.
within() {
    local left=$((setup_seconds - SECONDS)) code=0
    [ "$left" -gt 0 ] || skip "engine and images were not ready within $setup_seconds s"
    timeout --kill-after=10 "$left" "$@" || code=$?
    [ "$code" -lt 124 ] || [ "$SECONDS" -lt "$setup_seconds" ] || skip "engine and images were not ready within $setup_seconds s"
    return "$code"
}
has() { command -v "$1" > /dev/null; }
engine_answers() { timeout --kill-after=5 20 docker info > "$work/info" 2>&1; }
# What an engine that was killed has left behind keeps the next one from starting.
forget_dead() {
    local file
    for file in /var/run/docker.pid /run/docker/containerd/containerd.pid; do
        [ -e "$file" ] || continue
        case "$(readlink "/proc/$(cat "$file")/exe" 2> /dev/null)" in *dockerd | *containerd) ;; *) rm -f "$file" ;; esac
    done
}
install() {
    [ "$(id -u)" = 0 ] && has apt-get || skip "$1 is missing, and can't be installed without root and apt"
    tell "installing $1"
    within apt-get update -qq > "$work/apt.log" 2>&1 || skip "$1 is missing, and the package lists can't be read"
    within env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" > "$work/apt.log" 2>&1 ||
        skip "$1 is missing, and can't be installed: $(last_line "$work/apt.log")"
}
stop_engine() {
    rm -rf "$work"
    [ -n "$started" ] || return 0
    kill "$started" 2> /dev/null || true
    for _ in $(seq 60); do kill -0 "$started" 2> /dev/null || break; sleep 0.5; done
}
start_engine() {
    if ! has docker || ! has dockerd; then install docker.io; fi
    engine_answers && return # the package has started it
    [ "$(id -u)" = 0 ] || skip "no Docker engine answers, and only root can start one: $(last_line "$work/info")"
    forget_dead
    setsid dockerd > "$work/dockerd.log" 2>&1 < /dev/null &
    started=$!
    for _ in $(seq 120); do
        engine_answers && return
        kill -0 "$started" 2> /dev/null || break
        sleep 0.5
    done
    skip "the Docker engine does not start: $(last_line "$work/dockerd.log")"
}
# The Dockerfile's base image, or one like it that is made of this machine's own packages.
choose_base() {
    if [ -n "${BASE_IMAGE:-}" ]; then return; fi
    export BASE_IMAGE=$stock
    docker image inspect "$stock" > "$work/inspect" 2>&1 && return
    within timeout --kill-after=5 90 docker pull --quiet "$stock" > "$work/pull.log" 2>&1 && return
    BASE_IMAGE=tidegauge-base:$(sha256sum tools/base-image.sh | cut -c 1-12)
    docker image inspect "$BASE_IMAGE" > "$work/inspect" 2>&1 && return
    tell "$stock can't be pulled; making an image like it"
    has mmdebstrap || install mmdebstrap
    if [ -w /dev/shm ]; then export TMPDIR=/dev/shm; fi
    within tools/base-image.sh "$BASE_IMAGE" > "$work/base.log" 2>&1 ||
        skip "$stock can't be pulled, and no image like it can be made: $(last_line "$work/base.log")"
    unset TMPDIR
}
# Containers must run and freeze, and their published ports must be ours: an engine elsewhere has its own 127.0.0.1.
try_containers() {
    local container address
    within docker run --detach --publish 127.0.0.1::8000 "$BASE_IMAGE" python3 -m http.server 8000 \
        > "$work/container" 2> "$work/run.log" || skip "the Docker engine can't run a container: $(last_line "$work/run.log")"
    container=$(cat "$work/container")
    address=$(docker port "$container" 8000 | head -n 1)
    for _ in $(seq 60); do
        .venv/bin/python -c "import urllib.request as u; u.urlopen('http://$address', timeout=2)" 2> "$work/port.log" && break
        sleep 0.5
    done
    for _ in $(seq 5); do # a runtime may refuse while the machine is busy
        {
            timeout 20 docker pause "$container" && timeout 20 docker unpause "$container" && break
        } > "$work/pause.log" 2>&1
        sleep 1
    done
    docker rm --force --volumes "$container" > "$work/rm.log"
    ! grep -qi error "$work/pause.log" || skip "a container can't be paused: $(last_line "$work/pause.log")"
    [ ! -s "$work/port.log" ] || skip "a container's published port ($address) can't be reached: $(last_line "$work/port.log")"
}
build() {
    if within "${compose[@]}" --profile spark build zookeeper broker-0 spark > "$work/build.log" 2>&1; then return; fi
    if within timeout 120 docker run --rm "$BASE_IMAGE" sh -c \
        'apt-get update -qq --error-on=any && pip download --quiet --no-deps --dest /tmp crc32c' > "$work/net.log" 2>&1; then
        tail -n 40 "$work/build.log" >&2
        tell "an image can't be built"
        exit 1
    fi
    skip "the images must be built, and a container can't reach the package indexes: $(last_line "$work/net.log")"
}

trap stop_engine EXIT
if ! has docker || ! engine_answers; then start_engine; fi
if [ -n "${TIDEGAUGE_COMPOSE:-}" ]; then read -r -a compose <<< "$TIDEGAUGE_COMPOSE"
elif docker compose version > "$work/version" 2>&1; then compose=(docker compose)
else
    has docker-compose || install docker-compose
    compose=(docker-compose)
fi
choose_base
try_containers
tell "building with ${compose[*]} from $BASE_IMAGE"
build
tell "images are ready"
status=0
TIDEGAUGE_COMPOSE="${compose[*]}" .venv/bin/python -m pytest tests/compose "$@" || status=$?
tell "ended with $status"
exit "$status"
