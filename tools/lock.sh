#!/bin/sh
# Writes docker/locked: the packages that the images and action.yml install, in the versions of constraints.txt, each with
# the hashes of its files. pip --require-hashes refuses any other file.
set -eu
cd "$(dirname "$0")/.."

lock() { # NAME SOURCE [EXTRA...]
    name=$1 source=$2
    shift 2
    uv pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11.9 --constraint constraints.txt \
        --output-file "docker/locked/$name.txt" "$@" "$source"
}

lock broker pyproject.toml
lock spark pyproject.toml --extra spark --extra demo
lock action pyproject.toml --extra spark
python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' |
    lock build -
awk '/^pyspark==/ { on = 1 } on { print } on && !/\\$/ { exit }' docker/locked/spark.txt > docker/locked/pyspark.txt
