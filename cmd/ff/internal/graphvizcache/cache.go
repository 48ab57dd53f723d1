// Package graphvizcache says where go-graphviz keeps the machine code that it makes of Graphviz.
//
// It makes it when it is initialised, in every run of ff, in half a second, and keeps it in a folder of a fixed name in
// the directory for temporary files, where anybody on the machine may put machine code of his own before. So this package
// names a folder of the user's for that moment. Go initialises packages in the order of their import paths as far as the
// imports allow; this one imports nothing but the standard library and comes before theirs. A test holds it to that.
package graphvizcache

import (
	"os"
	"path/filepath"
	"runtime"
)

// variable is where the directory for temporary files is looked up. Windows has one for each user.
const variable = "TMPDIR"

var before, wasSet = os.LookupEnv(variable)

func init() {
	if runtime.GOOS == "windows" {
		return
	}
	folder := os.DevNull // nothing can be kept there, and it is made anew each time
	if cache, err := os.UserCacheDir(); err == nil {
		private := filepath.Join(cache, "flowfabric")
		if os.MkdirAll(private, 0o700) == nil && os.Chmod(private, 0o700) == nil {
			folder = private
		}
	}
	_ = os.Setenv(variable, folder)
}

// Restore gives the rest of the program the directory for temporary files back. It is called when all is initialised.
func Restore() {
	if wasSet {
		_ = os.Setenv(variable, before)
	} else {
		_ = os.Unsetenv(variable)
	}
}
