#!/bin/sh
# Installs the Slipway agent. Written by Slipway; holds a one-time token.
# SLIPWAY_ROOT is set on simulated nodes only.
set -eu
umask 077
root=${SLIPWAY_ROOT:-}

# What is installed from lies in memory, for root alone, and only meanwhile.
work=$root/run/slipway-install
rm -rf "$work"
mkdir -p "$root/run"
mkdir "$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# put NAME writes a file from base64 on standard input.
put() { base64 -d >"$work/$1"; }

