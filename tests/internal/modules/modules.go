// Package modules lists the repository's released modules, and builds a version from the files.
package modules

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// Root is the path of the module in the repository's root folder.
const Root = "github.com/flowfabric/flowfabric-go"

// Released lists the folders of the released modules. Each comes after its required modules.
var Released = []string{".", "internal/drawing", "console", "internal/pgserver", "internal/pgtest", "fftest", "ffotel", "review", "cmd/ff"}

// Path returns the path of the module in a folder.
func Path(folder string) string { return path.Join(Root, folder) }

// Tag returns the tag of a version of the module in a folder.
func Tag(folder, version string) string { return path.Join(folder, version) }

// isReleased reports whether the module of a path is one of [Released].
func isReleased(modulePath string) bool {
	return slices.ContainsFunc(Released, func(folder string) bool { return Path(folder) == modulePath })
}

// siblings returns the released modules a go.mod requires.
func siblings(file *modfile.File) []module.Version {
	var found []module.Version
	for _, require := range file.Require {
		if isReleased(require.Mod.Path) {
			found = append(found, require.Mod)
		}
	}
	return found
}

func readGoMod(folder string) (*modfile.File, error) {
	name := filepath.Join(folder, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, text, nil)
}

// CheckRequirements returns an error for each line of the released modules' go.mod files that would keep `go install
// …@version` from working: a replace or exclude directive, or a requirement of an unreleased module.
func CheckRequirements(root string) error {
	var errs []error
	for _, folder := range Released {
		file, err := readGoMod(filepath.Join(root, folder))
		if err != nil {
			return err
		}
		for _, replace := range file.Replace {
			errs = append(errs, fmt.Errorf("%s/go.mod replaces %s", folder, replace.Old.Path))
		}
		for _, exclude := range file.Exclude {
			errs = append(errs, fmt.Errorf("%s/go.mod excludes %s", folder, exclude.Mod))
		}
		for _, require := range file.Require {
			if own := strings.HasPrefix(require.Mod.Path, Root+"/"); own && !isReleased(require.Mod.Path) {
				errs = append(errs, fmt.Errorf("%s/go.mod requires %s, which is not released", folder, require.Mod.Path))
			}
		}
	}
	return errors.Join(errs...)
}

// git runs git in the repository and returns the output.
func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out), nil
}
