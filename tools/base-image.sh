#!/usr/bin/env bash
# Make an image like python:3.11-slim-bookworm out of this Debian machine's own package sources, for places where
# no image can be pulled. Usage: tools/base-image.sh TAG
set -euo pipefail
tag=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sources=(/etc/apt/sources.list.d/*.sources)
[ -e "${sources[0]}" ] || sources=(/etc/apt/sources.list)
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")

# Certificates of this machine go along: its package index may need them.
cat > "$work/customize" << 'HOOK'
#!/bin/sh
set -e
root=$1
mkdir -p "$root/usr/local/share/ca-certificates" "$root/usr/share/man/man1"
find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$root/usr/local/share/ca-certificates/" \;
chroot "$root" update-ca-certificates > /dev/null
cp /etc/ssl/certs/ca-certificates.crt "$root/usr/local/share/build-ca.pem"
ln -sf /usr/bin/python3 "$root/usr/local/bin/python"
rm -rf "$root"/usr/lib/python3*/EXTERNALLY-MANAGED "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
HOOK
chmod +x "$work/customize"
mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3,python3-venv,python3-pip \
    --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --customize-hook="$work/customize" \
    "$suite" "$work/base.tar" "${sources[@]}"
docker import --change 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8' \
    --change 'ENV PIP_CERT=/usr/local/share/build-ca.pem PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1' \
    --change 'CMD ["python3"]' "$work/base.tar" "$tag" > /dev/null
