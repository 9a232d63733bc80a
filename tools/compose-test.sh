#!/usr/bin/env bash
# Try docker-compose.yml for real: build the images, start the cluster, break it (tests/compose).
#
#   tools/compose-test.sh [WORDS FOR PYTEST ...]
#   tools/compose-test.sh --images      only an engine, and the images; ends with 75 where it skips
#   tools/compose-test.sh --cluster [WORDS FOR PYTEST ...]
#                                       the image of a whole cluster, and the recipes for Testcontainers (tests/containers)
#
# Where no Docker engine runs, it is installed and started on Debian as root. Where it can't be, or where its containers
# can't do what the tests ask of them, this says that it skips, and why, and ends with 0. An image that can't be built
# twice although the package indexes respond is a failure, and so is a test that fails.
#
#   SETUP_SECONDS      what engine and images may take in all (900); a machine that needs longer skips
#   LIMIT_SECONDS      what all of it may take (no limit). With a limit a failure counts when it is seen twice, and what
#                      there is no time for is left out: that is for CI, whose machine may be slow or busy
#   TIDEGAUGE_COMPOSE  the command to use, else "docker compose", else docker-compose
#   BASE_IMAGE         the image that all of ours begin with, else the Dockerfile's, else one made here
#
# An engine that was started here is stopped at the end, and the project's containers are removed; images stay. An image
# whose inputs (base image, Dockerfile, sources) are those of the last build is not built again.
set -euo pipefail
cd "$(dirname "$0")/.."
setup_seconds=${SETUP_SECONDS:-900}
limit_seconds=${LIMIT_SECONDS:-86400}
skip_code=0
only_images=""
if [ "${1:-}" = --images ]; then only_images=yes skip_code=75; fi
only_cluster=""
if [ "${1:-}" = --cluster ]; then only_cluster=yes; shift; fi
stock=python:3.11-slim-bookworm
project=tidegauge-test-$$
work=$(mktemp -d)
started=""
installed=""
child=""
unbroken=""
exec 3>&2 # where we speak, whatever is redirected

report() { echo "compose-test, $SECONDS s: $*" >&3; }
skip() { echo "SKIPPED compose-test: $1" >&3; exit "$skip_code"; }
last_line() { grep -sv '^[[:space:]]*$' "$1" | tail -n 1 || true; }
has() { command -v "$1" > /dev/null; }
# timed WORDS...: runs `timeout WORDS...`; a signal to this script is heeded at once, not when the program ends.
timed() {
    local code=0
    timeout "$@" &
    child=$!
    wait "$child" || code=$?
    child=""
    return "$code"
}
# Runs a program of the set-up, at most for what is left of its time.
within() {
    local end=$((setup_seconds < limit_seconds ? setup_seconds : limit_seconds)) code=0
    [ "$SECONDS" -lt "$end" ] || skip "engine and images were not ready within $end s"
    timed --kill-after=10 $((end - SECONDS)) "$@" || code=$?
    [ "$code" -lt 124 ] || [ "$SECONDS" -lt "$end" ] || skip "engine and images were not ready within $end s"
    return "$code"
}

# --- The engine ---

engine_responds() { has docker && timeout --kill-after=5 20 docker info > "$work/info" 2>&1; }
# What an engine that was killed has left behind keeps the next one from starting.
forget_dead() {
    local file
    for file in /var/run/docker.pid /run/docker/containerd/containerd.pid; do
        [ -e "$file" ] || continue
        case "$(readlink "/proc/$(cat "$file")/exe" 2> /dev/null)" in *dockerd | *containerd) ;; *) rm -f "$file" ;; esac
    done
}
install() {
    [ "$(id -u)" = 0 ] && has apt-get || skip "$* can't be installed without root and apt"
    report "installing $*"
    if [ -z "$installed" ]; then
        within apt-get update -qq > "$work/apt.log" 2>&1 || skip "$* can't be installed: $(last_line "$work/apt.log")"
    fi
    installed="$installed $*"
    within apt-get install -y -qq --no-install-recommends --download-only "$@" > "$work/apt.log" 2>&1 ||
        skip "$* can't be installed: $(last_line "$work/apt.log")"
    # The rest is short, and is never broken off: half of a package would be in the way of whatever comes next.
    DEBIAN_FRONTEND=noninteractive setsid apt-get install -y -qq --no-install-recommends "$@" \
        > "$work/apt.log" 2>&1 < /dev/null &
    unbroken=$!
    wait "$unbroken" || skip "$* can't be installed: $(last_line "$work/apt.log")"
    unbroken=""
}
start_engine() {
    local missing=()
    if ! has docker || ! has dockerd; then missing+=(docker.io); fi
    [ -n "$only_cluster" ] || has_compose || missing+=(docker-compose)
    [ "$(id -u)" = 0 ] || skip "no Docker engine responds, and only root can start one: $(last_line "$work/info")"
    [ ${#missing[@]} = 0 ] || install "${missing[@]}"
    if engine_responds; then return; fi # the package has started it
    has dockerd || skip "there is no Docker engine to start"
    forget_dead
    setsid dockerd > "$work/dockerd.log" 2>&1 < /dev/null &
    started=$!
    for _ in $(seq 120); do
        if engine_responds; then return; fi
        kill -0 "$started" 2> /dev/null || break
        sleep 0.5
    done
    skip "the Docker engine does not start: $(last_line "$work/dockerd.log")"
}
# Whatever happened: nothing of ours goes on running.
clean_up() {
    local ours kind
    trap : TERM INT
    if [ -n "$unbroken" ]; then wait "$unbroken" || true; fi
    if [ -n "$child" ] && kill "$child" 2> /dev/null; then wait "$child" || true; fi
    if [ -e "$work/engine" ]; then
        {
            ours=$(timeout 20 docker ps --all --quiet --filter "name=$project[-_]")
            [ -z "$ours" ] || timeout 60 docker rm --force --volumes $ours
            for kind in network volume; do
                ours=$(timeout 20 docker "$kind" ls --quiet --filter "name=$project[-_]")
                [ -z "$ours" ] || timeout 60 docker "$kind" rm $ours
            done
        } > "$work/clean.log" 2>&1 || true
    fi
    if [ -n "$started" ]; then
        kill "$started" 2> /dev/null || true
        for _ in $(seq 80); do kill -0 "$started" 2> /dev/null || break; sleep 0.5; done
        if kill -KILL "$started" 2> /dev/null; then kill "$(cat /run/docker/containerd/containerd.pid)" || true; fi
    elif [[ $installed = *docker.io* ]] && has service; then
        timeout 60 service docker stop > "$work/clean.log" 2>&1 || true # the package has started it
    fi
    rm -rf "$work"
}

# --- What the images begin with ---

choose_base() {
    if [ -n "${BASE_IMAGE:-}" ]; then return; fi
    export BASE_IMAGE=$stock
    docker image inspect "$stock" > "$work/inspect" 2>&1 && return
    within timeout --kill-after=5 90 docker pull --quiet "$stock" > "$work/pull.log" 2>&1 && return
    BASE_IMAGE=tidegauge-base:$(sha256sum tools/base-image.sh | cut -c 1-12)
    docker image inspect "$BASE_IMAGE" > "$work/inspect" 2>&1 && return
    report "$stock can't be pulled; making an image like it"
    has mmdebstrap || install mmdebstrap
    if [ -w /dev/shm ]; then export TMPDIR=/dev/shm; fi
    within tools/base-image.sh "$BASE_IMAGE" > "$work/base.log" 2>&1 ||
        skip "$stock can't be pulled, and no image like it can be made: $(last_line "$work/base.log")"
    unset TMPDIR
}

# --- What the tests ask of containers, asked of trivial ones first ---

# probe WHAT COMMAND...: tries it up to 30 times; a machine on which it does not work can't run the tests.
probe() {
    local what=$1
    shift
    for _ in $(seq 30); do
        if timed --kill-after=5 30 "$@" > "$work/probe.log" 2>&1; then return; fi
        [ "$SECONDS" -lt "$limit_seconds" ] || break
        sleep 0.5
    done
    skip "containers can't $what here: $(last_line "$work/probe.log")"
}
try_containers() {
    local name=$project-probe began=$SECONDS
    local fetch='import sys, urllib.request as u; u.urlopen(f"http://{sys.argv[1]}", timeout=5)'
    probe "have a network" docker network create "$name"
    probe "run, with a port on 127.0.0.1" docker run --detach --init --name "$name-a" --network "$name" \
        --network-alias first --publish 127.0.0.1::8000 "$BASE_IMAGE" python3 -m http.server 8000
    probe "run" docker run --detach --init --name "$name-b" --network "$name" "$BASE_IMAGE" sleep 3600
    # An engine elsewhere has a 127.0.0.1 of its own.
    probe "be reached from here" python3 -c "$fetch" "$(docker port "$name-a" 8000 | head -n 1)"
    probe "reach each other" docker exec "$name-b" python3 -c "$fetch" first:8000
    probe "be frozen" docker pause "$name-a"
    probe "be thawed" docker unpause "$name-a"
    probe "be cut off" docker network disconnect "$name" "$name-a"
    probe "be connected again" docker network connect --alias first "$name" "$name-a"
    probe "be killed" docker kill "$name-a"
    probe "be started again" docker start "$name-a"
    probe "reach each other after a restart" docker exec "$name-b" python3 -c "$fetch" first:8000
    docker rm --force --volumes "$name-a" "$name-b" > "$work/rm.log" 2>&1 || true
    docker network rm "$name" >> "$work/rm.log" 2>&1 || true
    report "containers do what is needed (tried in $((SECONDS - began)) s)"
}

# --- Our images ---

has_compose() { { has docker && docker compose version; } > "$work/version" 2>&1 || has docker-compose; }
choose_compose() {
    if [ -n "${TIDEGAUGE_COMPOSE:-}" ]; then
        read -r -a compose <<< "$TIDEGAUGE_COMPOSE"
    elif docker compose version > "$work/version" 2>&1; then
        compose=(docker compose)
    else
        has docker-compose || install docker-compose
        compose=(docker-compose)
    fi
}
# What a machine's network or disk does to a build.
not_ours='no space left|cannot allocate memory|timed out|timeout|temporary failure|could not resolve|too many requests'
not_ours+='|connection (reset|refused|broken|aborted)|unexpected eof|incompleteread|hash sum mismatch|service unavailable'
not_ours+='|bad gateway|(unable|failed) to fetch|unable to locate|max retries|connectionpool|ssl|network is unreachable'
not_ours+='|could not find a version|no matching distribution|i/o error|input/output error'
# What the images are made of, as a digest. It is a tag of each image that was made of it.
digest_inputs() {
    {
        docker image inspect --format '{{.Id}}' "$BASE_IMAGE"
        find Dockerfile .dockerignore docker-compose.yml docker-compose.kraft.yml pyproject.toml README.md LICENSE NOTICE docker \
            proto broker controller client spark_jobs lab proof -type f -not -path '*/__pycache__/*' -print0 |
            LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum | cut -c 1-16
}
image_of() { case "$1" in broker-*) echo tidegauge-broker ;; *) echo "tidegauge-$1" ;; esac }
id_of() { docker image inspect --format '{{.Id}}' "$1" 2> /dev/null; }
# build SERVICE...: builds the images that are not there or whose inputs have changed.
build() {
    local service image old changed=()
    for service in "$@"; do
        image=$(image_of "$service")
        [ -n "$(id_of "$image")" ] && [ "$(id_of "$image")" = "$(id_of "$image:$inputs")" ] || changed+=("$service")
    done
    [ ${#changed[@]} -gt 0 ] || return 0
    report "building ${changed[*]} with ${compose[*]} from $BASE_IMAGE"
    try_build "${changed[@]}"
    for service in "${changed[@]}"; do
        image=$(image_of "$service")
        for old in $(docker image ls --format '{{.Tag}}' "$image" | grep '^inputs-' || true); do
            docker image rm "$image:$old" > "$work/rm.log" 2>&1 || true
        done
        docker tag "$image" "$image:$inputs"
    done
}
# try_build SERVICE...: tries twice, since a download may break off.
try_build() {
    within "${compose[@]}" --profile spark build "$@" > "$work/build.log" 2>&1 && return
    report "an image can't be built; once more"
    within "${compose[@]}" --profile spark build "$@" > "$work/build.log" 2>&1 && return
    if grep -qiE "$not_ours" "$work/build.log"; then
        skip "an image can't be built: $(grep -iE "$not_ours" "$work/build.log" | tail -n 1)"
    fi
    within timeout 120 docker run --rm "$BASE_IMAGE" sh -c \
        'apt-get update -qq --error-on=any && pip download --quiet --no-deps --dest /tmp crc32c' > "$work/net.log" 2>&1 ||
        skip "an image can't be built, and a container can't reach the package indexes: $(last_line "$work/net.log")"
    tail -n 40 "$work/build.log" >&2
    report "an image can't be built"
    exit 1
}

# --- The tests ---

# run_tests WORDS...: pytest's exit code, or 124 when the time is over. It begins no test within 45 s of the end.
run_tests() {
    local left=$((limit_seconds - SECONDS)) code=0
    export TIDEGAUGE_COMPOSE="${compose[*]}" COMPOSE_PROJECT_NAME=$project COMPOSE_TEST_ENDS_S=$(($(date +%s) + left))
    timed --signal=INT --kill-after=40 "$left" \
        env --default-signal=INT .venv/bin/python -m pytest tests/compose -o cache_dir="$work/cache" \
        -o addopts="--import-mode=importlib --strict-markers -ra" "$@" || code=$? # with a cache, which our settings leave out
    return "$code"
}
# test_cluster WORDS...: builds the images of a whole cluster, one for each mode, and tries them.
test_cluster() {
    local target tried
    for target in cluster cluster-kraft; do
        for tried in once "once more"; do
            report "building tidegauge-$target from $BASE_IMAGE ($tried)"
            within docker build --build-arg BASE_IMAGE="$BASE_IMAGE" --target "$target" --tag "tidegauge-$target" . \
                > "$work/build.log" 2>&1 && break
            [ "$tried" = once ] || { tail -n 40 "$work/build.log" >&2; report "the image can't be built"; exit 1; }
        done
    done
    TIDEGAUGE_CLUSTER_IMAGES="tidegauge-cluster tidegauge-cluster-kraft" .venv/bin/python -m pytest tests/containers "$@"
}
time_for() { [ $((limit_seconds - SECONDS)) -ge "$1" ]; }

trap clean_up EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
if [ -z "$only_images" ]; then time_for 75 || skip "there is no time left for it"; fi
engine_responds || start_engine
touch "$work/engine"
[ -n "$only_cluster" ] || choose_compose
choose_base
try_containers
if [ -n "$only_cluster" ]; then test_cluster "$@"; exit; fi
inputs=inputs-$(digest_inputs)
build zookeeper broker-0
report "images of the cluster are ready"
build spark
report "the job's image is ready"
if [ -n "$only_images" ]; then exit 0; fi
time_for 75 || skip "there is no time left for it"
status=0
run_tests "$@" || status=$?
if [ "$status" = 1 ] && [ -n "${LIMIT_SECONDS:-}" ]; then
    report "something failed; it counts if it fails again, on a machine whose containers still work"
    try_containers
    time_for 75 || skip "something failed (above), and there is no time left to see it again"
    status=0
    run_tests --last-failed "$@" || status=$?
fi
if [ "$status" -ge 124 ] && [ -n "${LIMIT_SECONDS:-}" ]; then skip "the time was over; what was tried stands above"; fi
report "ended with $status"
exit "$status"
