#!/bin/sh
# A root file system with Python and what it needs, nothing else: no shell, no package manager. For an image FROM scratch.
# Usage, on a Debian of the release that the image is to have: python_root.sh DIRECTORY
set -eu
root=$1
mkdir -p "$root" && cd "$(mktemp -d)"
# Python's own libraries, not those of databases, terminals or Tk: nothing here imports them.
apt-get -qq download python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libstdc++6 zlib1g \
    libexpat1 libffi8 libssl3 libbz2-1.0 liblzma5 libuuid1
for package in *.deb; do dpkg -x "$package" "$root"; done
cd "$root"
rm -rf usr/share/doc usr/share/man usr/share/lintian usr/share/locale usr/share/bug usr/share/python3 \
    usr/lib/*-linux-gnu/gconv
for unused in curses dbm distutils ensurepip idlelib lib2to3 pydoc_data sqlite3 test tkinter unittest wsgiref xmlrpc; do
    rm -rf "usr/lib/python3.11/$unused"
done
rm -f usr/lib/python3.11/turtle.py usr/lib/python3.11/pydoc.py usr/lib/python3.11/doctest.py
mkdir -p tmp var/lib/tidegauge etc proc dev
chmod 1777 tmp
ln -s python3.11 usr/bin/python3
echo 'root:x:0:0::/:' > etc/passwd
echo 'tidegauge:x:1000:1000::/var/lib/tidegauge:' >> etc/passwd
printf 'root:x:0:\ntidegauge:x:1000:\n' > etc/group
echo 'hosts: files dns' > etc/nsswitch.conf
chown 1000:1000 var/lib/tidegauge
