#!/bin/sh
# Installs the Slipway agent. Written by Slipway; holds a one-time token.
# SLIPWAY_ROOT is set on simulated nodes only.
set -eu
umask 077
root=${SLIPWAY_ROOT:-}

# put PATH MODE writes a file whole from base64 on standard input.
put() {
    [ -d "$root${1%/*}" ] || mkdir -p "$root${1%/*}"
    base64 -d >"$root$1.new"
    chmod "$2" "$root$1.new"
    mv -f "$root$1.new" "$root$1"
}

