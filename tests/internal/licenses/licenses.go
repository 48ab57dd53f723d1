// Package licenses collects the license texts of the code linked into a command.
package licenses

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// texts are the licenses of programs a module embeds compiled, without their license.
//
//go:embed embedded/*.txt
var texts embed.FS

// Command is a command that prints the licenses.
type Command struct {
	Name, Folder string
	// module is the one among the command's modules that embeds a compiled program, text the program's license.
	module, program, text string
}

// Commands are the commands of the released modules.
var Commands = []Command{
	{"ff", "cmd/ff", "github.com/goccy/go-graphviz", "Graphviz", "graphviz.txt"},
	{"schema-review", "review/cmd/schema-review", "github.com/wasilibs/go-pgquery", "PostgreSQL", "postgresql.txt"},
}

// File returns the path of the file with the licenses, below the repository's root.
func (c Command) File() string { return filepath.Join(filepath.FromSlash(c.Folder), "licenses.txt") }

// systems are the operating systems for which commands are built. They link other modules on each.
var systems = []string{"linux", "darwin", "windows"}

// notice matches the names of the files that have to be shipped.
var notice = regexp.MustCompile(`(?i)^(licen[sc]e|copying|copyright|notice|patents)([-.].*)?$`)

// collection has the license texts of the code linked into a command, and the subjects of each.
type collection struct {
	texts  []string // in the order in which they were found
	owners map[string][]string
}

func (c *collection) add(owner, text string) {
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	if c.owners[text] == nil {
		c.texts = append(c.texts, text)
	}
	if !slices.Contains(c.owners[text], owner) {
		c.owners[text] = append(c.owners[text], owner)
	}
}

// Collect returns the licenses a command prints. The root is the repository's. Equal texts appear once.
func Collect(root string, command Command) (string, error) {
	folders, err := linked(root, command.Folder)
	if err != nil {
		return "", err
	}
	c := &collection{owners: make(map[string][]string)}
	var errs []error
	for _, folder := range folders {
		errs = append(errs, c.addFolder(folder.module, folder.folder))
		if folder.module == "golang.org/x/text" {
			errs = append(errs, c.addFolder("the Go standard library", folder.folder)) // which has the same
		}
	}
	for _, folder := range folders {
		if !slices.ContainsFunc(c.texts, func(text string) bool { return slices.Contains(c.owners[text], folder.module) }) {
			errs = append(errs, fmt.Errorf("there is no license in module %s", folder.module))
		}
	}
	if !slices.ContainsFunc(folders, func(f folder) bool { return f.module == command.module }) {
		errs = append(errs, fmt.Errorf("%s does not link %s any more, which embeds %s", command.Name, command.module, command.program))
	}
	text, err := texts.ReadFile("embedded/" + command.text)
	errs = append(errs, err)
	c.add(command.program+", in "+command.module, string(text))
	return c.list(command.Name), errors.Join(errs...)
}

// addFolder adds the license files in a folder of a module.
func (c *collection) addFolder(module, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := filepath.Join(folder, entry.Name())
		if entry.IsDir() && entry.Name() == "licenses" { // a choice of licenses
			if err := c.addTexts(module, name); err != nil {
				return err
			}
		}
		if entry.IsDir() || !notice.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		c.add(module, string(text))
	}
	return nil
}

// addTexts adds every text file in a folder of a module.
func (c *collection) addTexts(module, folder string) error {
	names, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	for _, name := range names {
		text, readErr := os.ReadFile(name)
		err = errors.Join(err, readErr)
		c.add(module, string(text))
	}
	return err
}

func (c *collection) list(command string) string {
	rule := strings.Repeat("=", 80) + "\n"
	var out strings.Builder
	out.WriteString("The licenses of " + command + " and of what it links, each below the names of the modules it belongs to.\n")
	for _, text := range c.texts {
		owners := slices.Sorted(slices.Values(c.owners[text]))
		out.WriteString("\n" + rule + strings.Join(owners, "\n") + "\n" + rule + "\n" + text + "\n")
	}
	return out.String()
}

// folder is a folder with packages a command links, or one above it, in a module.
type folder struct{ module, folder string }

// linked returns the folders, a module's from its root down.
func linked(root, command string) ([]folder, error) {
	var found []folder
	for _, system := range systems {
		cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Dir}}\t{{$.Dir}}{{end}}", "./"+command)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Split(strings.TrimSpace(line), "\t")
			if len(fields) != 3 {
				continue
			}
			module, top, dir := fields[0], fields[1], fields[2]
			if strings.HasPrefix(module, "github.com/flowfabric/flowfabric-go") {
				module, top, dir = "github.com/flowfabric/flowfabric-go", root, root
			}
			for ; strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
				found = append(found, folder{module, dir})
			}
		}
	}
	slices.SortFunc(found, func(a, b folder) int {
		if c := strings.Compare(a.module, b.module); c != 0 {
			return c
		}
		return strings.Compare(a.folder, b.folder)
	})
	return slices.Compact(found), nil
}
