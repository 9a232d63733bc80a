#!/usr/bin/env bash
# Java 17 or newer is needed by ZooKeeper and Spark. Says what to install, or does it on Debian as root.
set -euo pipefail
major() { java -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -1; }
if command -v java > /dev/null && [ "$(major)" -ge 17 ] 2> /dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    echo "Java 17 is missing; installing openjdk-17-jre-headless" >&2
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless > /dev/null && exit 0
fi
echo "Java 17 or newer is needed by ZooKeeper and Spark, and was not found." >&2
echo "Install it, for example: apt-get install openjdk-17-jre-headless (Debian), brew install openjdk@17 (macOS)." >&2
exit 1
