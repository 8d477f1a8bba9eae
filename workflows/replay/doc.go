// Package replay holds recorded workflow histories of every release, under
// testdata/<workflow>/<release>, and the tests that replay them: a change that would break a
// running job fails here first. `make histories` records those of the release at hand; histories of
// earlier releases are never recorded again. docs/develop/development.md says how a change is
// guarded by a version marker.
package replay
