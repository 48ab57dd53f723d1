package modules

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tidy runs go mod tidy in a module of the repository. Outside the workspace, where tidy works, the versions at which
// released modules require each other may not exist yet, so the module requires their folders meanwhile.
func Tidy(root, moduleFolder string) (err error) {
	folder := filepath.Join(root, moduleFolder)
	goMod, err := readGoMod(folder)
	if err != nil {
		return err
	}
	goSum, err := os.ReadFile(filepath.Join(folder, "go.sum"))
	if err != nil {
		return err
	}
	var ours string // the lines of go.sum about released modules, which tidy removes
	for line := range strings.Lines(string(goSum)) {
		if name, _, _ := strings.Cut(line, " "); isReleased(name) {
			ours += line
		}
	}
	replaced := make(map[string]bool)
	for _, replace := range goMod.Replace {
		replaced[replace.Old.Path] = true
	}
	var replace, drop []string
	for _, other := range Released {
		if path := Path(other); other != moduleFolder && !replaced[path] {
			replace = append(replace, "-replace="+path+"="+filepath.Join(root, other))
			drop = append(drop, "-dropreplace="+path)
		}
	}
	if err := goCommand(folder, append([]string{"mod", "edit"}, replace...)...); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, goCommand(folder, append([]string{"mod", "edit"}, drop...)...))
	}()
	if err := goCommand(folder, "mod", "tidy"); err != nil {
		return err
	}
	if goSum, err = os.ReadFile(filepath.Join(folder, "go.sum")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "go.sum"), replaceSums(goSum, ours), 0o644)
}

// goCommand runs the go command in a folder, outside the workspace.
func goCommand(folder string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), folder, err, out)
	}
	return nil
}
