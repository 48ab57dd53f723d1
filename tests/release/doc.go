// Package release tests releases: the modules as a user installs them, their tags, licenses and pinned actions. `make test`
// leaves the package out, because it builds everything again: run `make test-release`.
package release
