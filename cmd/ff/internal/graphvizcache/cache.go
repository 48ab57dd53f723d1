// Package graphvizcache sets the folder in which go-graphviz caches its compiled machine code.
//
// go-graphviz compiles Graphviz when it is initialised, in every run of ff, which takes up to a second. It
// caches the code in a folder with a fixed name in the directory for temporary files, where other users of the machine
// could place code of their own. So this package sets a private folder for that moment. Go initialises packages in the
// order of their import paths as far as the imports allow. This package imports only the standard library and sorts before
// go-graphviz, and package graphviz, which restores the directory, comes right after go-graphviz; a test checks that.
package graphvizcache

import (
	"os"
	"path/filepath"
	"runtime"
)

// variable selects the directory for temporary files. Windows has one for each user.
const variable = "TMPDIR"

var before, wasSet = os.LookupEnv(variable)

func init() {
	if runtime.GOOS == "windows" {
		return
	}
	folder := os.DevNull // nothing can be cached there, so the code is compiled each time
	if cache, err := os.UserCacheDir(); err == nil {
		private := filepath.Join(cache, "flowfabric")
		if os.MkdirAll(private, 0o700) == nil && os.Chmod(private, 0o700) == nil {
			folder = private
		}
	}
	_ = os.Setenv(variable, folder)
}

// Restore restores the directory for temporary files.
func Restore() {
	if wasSet {
		_ = os.Setenv(variable, before)
	} else {
		_ = os.Unsetenv(variable)
	}
}
