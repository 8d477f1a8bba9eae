// Package runplan decides about plans: recipes of a few typed steps that a run carries out on one
// machine, strictly in order. It checks plans, has the default plan of each type of run, and
// decides whether a plan may start on a machine. It is values only.
package runplan
