#!/bin/sh
# Registers Slipway's namespace, its search attributes, and the namespace of the passes. Safe to repeat.
set -eu
temporal operator namespace describe --namespace "$NAMESPACE" >/dev/null 2>&1 ||
  temporal operator namespace create --namespace "$NAMESPACE" --retention 30d
passes=${MAINTENANCE_NAMESPACE:-$NAMESPACE-maintenance}
temporal operator namespace describe --namespace "$passes" >/dev/null 2>&1 ||
  temporal operator namespace create --namespace "$passes" --retention 3d
attribute() { # attribute NAME TYPE
  known=$(temporal operator search-attribute list --namespace "$NAMESPACE")
  if echo "$known" | grep -qw "$1"; then return; fi
  temporal operator search-attribute create --namespace "$NAMESPACE" --name "$1" --type "$2"
}
attribute NodeID Keyword
attribute Hostname Keyword
attribute SiteID Keyword
attribute JobKind Keyword
attribute JobStatus Keyword
attribute Stage Keyword
attribute NeedsHuman Bool
echo "namespace $NAMESPACE is ready"
