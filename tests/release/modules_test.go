package release

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/checkout"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// ownModules are the modules beside pgx that this library requires. They have no requirements of their own.
var ownModules = []string{"github.com/google/uuid", "github.com/netresearch/go-cron"}

// TestModulesAddFourLinesToGoSum builds a program that imports every package of this library, and one that
// imports pgx alone. The first has two lines for each of the own modules more in its go.sum and no other version of anything. It
// requires the oldest possible version of each module that the command, the tests, the examples and the benchmarks
// require, and this library raises none of them.
func TestModulesAddFourLinesToGoSum(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	own := requirements(t, root)
	pgx := own["github.com/jackc/pgx/v5"]
	if pgx == "" {
		t.Fatalf("the root's go.mod must require pgx: %v", own)
	}
	var imports []string
	for _, pkg := range checkout.List(t, "./...") {
		if room := checkout.Folder(pkg); room != "" && !strings.HasPrefix(room, "internal/") {
			imports = append(imports, pkg)
		}
	}

	other := newProgram(t, "github.com/jackc/pgx/v5/pgxpool")
	other.edit("-require=github.com/jackc/pgx/v5@" + pgx)
	otherModules, otherSums := other.build()

	program := newProgram(t, imports...)
	program.edit("-require=github.com/jackc/pgx/v5@"+pgx, "-require="+fixture.Module+"@v0.0.0", "-replace="+fixture.Module+"="+root)
	want := maps.Clone(otherModules)
	want[fixture.Module] = "v0.0.0"
	for _, path := range ownModules {
		want[path] = own[path]
	}
	var oldest []string                                               // flags
	for _, folder := range checkout.List(t, "-m", "-f", "{{.Dir}}") { // the modules of go.work
		for required := range requirements(t, folder) {
			if checkout.Own(required) || want[required] != "" {
				continue
			}
			version, flags := program.oldest(required)
			want[required], oldest = version, append(oldest, flags...)
		}
	}
	program.edit(oldest...)
	if len(want) < len(otherModules)+10 {
		t.Fatalf("the other modules require no more than pgx does: %v", want)
	}
	modules, sums := program.build()

	for _, path := range slices.Sorted(maps.Keys(modules)) {
		if modules[path] != want[path] {
			t.Errorf("this library takes %s from version %q to %q", path, want[path], modules[path])
		}
	}
	var rest strings.Builder
	ownLines := 0
	for line := range strings.Lines(sums) {
		if slices.ContainsFunc(ownModules, func(path string) bool { return strings.HasPrefix(line, path+" "+own[path]) }) {
			ownLines++
			continue
		}
		rest.WriteString(line)
	}
	if ownLines != 2*len(ownModules) || rest.String() != otherSums {
		t.Errorf("go.sum of a program with this library:\n%s\nof one with pgx, to which it may add two lines of each of %s:\n%s",
			sums, ownModules, otherSums)
	}
}

// requirements returns the versions of the modules that the go.mod in a folder requires.
func requirements(t *testing.T, folder string) map[string]string {
	t.Helper()
	goMod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	required := make(map[string]string)
	for line := range strings.Lines(string(goMod)) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) >= 2 && strings.Contains(fields[0], ".") && strings.HasPrefix(fields[1], "v") {
			required[fields[0]] = fields[1]
		}
	}
	return required
}

// program is a module of a user's, without a go.work.
type program struct {
	t      *testing.T
	folder string
}

func newProgram(t *testing.T, imports ...string) *program {
	t.Helper()
	p := &program{t, t.TempDir()}
	goMod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var version string
	for line := range strings.Lines(string(goMod)) {
		if strings.HasPrefix(line, "go ") {
			version = line
		}
	}
	p.write("go.mod", "module example.com/program\n\n"+version)
	var main strings.Builder
	main.WriteString("package main\n\n")
	for _, pkg := range imports {
		fmt.Fprintf(&main, "import _ %q\n", pkg)
	}
	main.WriteString("\nfunc main() {}\n")
	p.write("main.go", main.String())
	return p
}

func (p *program) write(name, content string) {
	p.t.Helper()
	name = filepath.Join(p.folder, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) run(args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "go", args...)
	cmd.Dir = p.folder
	// The contents of the module cache were checked when they got there.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOSUMDB=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

func (p *program) edit(flags ...string) {
	p.t.Helper()
	p.run(append([]string{"mod", "edit"}, flags...)...)
}

// oldest makes an empty module that stands for any version of the path. It returns the oldest version that the path can have,
// and the flags of edit that require it.
func (p *program) oldest(modulePath string) (version string, flags []string) {
	p.t.Helper()
	version = "v0.0.0"
	if major := strings.TrimLeft(path.Ext(modulePath), "."); strings.HasPrefix(modulePath, "gopkg.in/") {
		version = major + ".0.0"
	} else if major := path.Base(modulePath); len(major) > 1 && major[0] == 'v' && strings.Trim(major[1:], "0123456789") == "" {
		version = major + ".0.0"
	}
	p.write(filepath.Join("oldest", modulePath, "go.mod"), "module "+modulePath+"\n")
	return version, []string{"-require=" + modulePath + "@" + version, "-replace=" + modulePath + "=./oldest/" + modulePath}
}

// build builds the program. It returns the versions of the modules it is built from, and its go.sum.
func (p *program) build() (versions map[string]string, sums string) {
	p.t.Helper()
	p.run("build", "-o", os.DevNull, ".")
	versions = make(map[string]string)
	for line := range strings.Lines(p.run("list", "-m", "-f", "{{if not .Main}}{{.Path}} {{.Version}}{{end}}", "all")) {
		if fields := strings.Fields(line); len(fields) == 2 {
			versions[fields[0]] = fields[1]
		}
	}
	text, err := os.ReadFile(filepath.Join(p.folder, "go.sum"))
	if err != nil {
		p.t.Fatal(err)
	}
	return versions, string(text)
}
