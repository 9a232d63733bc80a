#!/usr/bin/env bash
# Generates the Python code of proto/tidegauge/v1 beside the .proto files.
# With --check it generates elsewhere and fails when the checked-in code differs.
set -euo pipefail
check=""
if [ "${1:-}" = "--check" ]; then check=yes; shift; fi
root=$1
bin=$PWD/.venv-proto/bin
out=$root
if [ -n "$check" ]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi
"$bin/python" -m grpc_tools.protoc -I"$root" --python_out="$out" \
    --plugin=protoc-gen-mypy="$bin/protoc-gen-mypy" --mypy_out=quiet:"$out" "$root"/tidegauge/v1/*.proto
"$bin/python" -m grpc_tools.protoc -I"$root" --grpc_python_out="$out" \
    --plugin=protoc-gen-mypy_grpc="$bin/protoc-gen-mypy_grpc" --mypy_grpc_out=quiet:"$out" "$root"/tidegauge/v1/*_service.proto
if [ -n "$check" ]; then
    failed=""
    for file in $(cd "$root" && ls tidegauge/v1/*_pb2* ; cd "$out" && ls tidegauge/v1/*_pb2*); do
        cmp -s "$root/$file" "$out/$file" || failed="$failed $file"
    done
    if [ -n "$failed" ]; then
        echo "Generated code differs from the .proto files:$(echo "$failed" | tr ' ' '\n' | sort -u | tr '\n' ' ')" >&2
        echo "Run: make proto" >&2
        exit 1
    fi
fi
