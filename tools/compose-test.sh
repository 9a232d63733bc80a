#!/usr/bin/env bash
# Try docker-compose.yml for real: build the images, start the cluster, break it (tests/compose).
# Where no Docker engine runs, it is installed and started on Debian as root; else this says that it skips, and why.
# The engine that was started here is stopped at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
standin=tidegauge-base:local
log=$(mktemp -d)/dockerd.log
started=""

skip() { echo "SKIPPED compose-test: $1" >&2; exit 0; }
# What an engine that was killed has left behind keeps the next one from starting.
forget_dead() {
    for file in /var/run/docker.pid /run/docker/containerd/containerd.pid; do
        [ -e "$file" ] || continue
        case "$(readlink "/proc/$(cat "$file")/exe" 2> /dev/null)" in *dockerd | *containerd) ;; *) rm -f "$file" ;; esac
    done
}
install_engine() {
    [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || skip "there is no Docker engine, and it can't be installed without root and apt"
    apt-get update -qq > /dev/null 2>&1 || skip "the package lists can't be read"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" > /dev/null 2>&1 ||
        skip "$* can't be installed"
}
stop_engine() {
    [ -z "$started" ] && return
    kill "$started" 2> /dev/null || true
    for _ in $(seq 60); do kill -0 "$started" 2> /dev/null || break; sleep 0.5; done
}

if ! docker info > /dev/null 2>&1; then
    command -v dockerd > /dev/null || install_engine docker.io
    forget_dead
    setsid dockerd > "$log" 2>&1 < /dev/null &
    started=$!
    trap stop_engine EXIT
    for _ in $(seq 60); do docker info > /dev/null 2>&1 && break; sleep 0.5; done
    docker info > /dev/null 2>&1 || skip "the Docker engine does not start: $(tail -n 1 "$log")"
fi
if docker compose version > /dev/null 2>&1; then compose="docker compose"; else
    command -v docker-compose > /dev/null || install_engine docker-compose
    compose=docker-compose
fi
if [ -z "${BASE_IMAGE:-}" ] && ! docker image inspect python:3.11-slim-bookworm > /dev/null 2>&1 &&
    ! timeout 120 docker pull --quiet python:3.11-slim-bookworm > /dev/null 2>&1; then
    if ! docker image inspect "$standin" > /dev/null 2>&1; then
        echo "python:3.11-slim-bookworm can't be pulled; making an image like it" >&2
        command -v mmdebstrap > /dev/null || install_engine mmdebstrap
        [ -w /dev/shm ] && export TMPDIR=/dev/shm
        tools/base-image.sh "$standin" || skip "no base image can be made"
    fi
    export BASE_IMAGE=$standin
fi
TIDEGAUGE_COMPOSE="$compose" .venv/bin/python -m pytest tests/compose "$@"
