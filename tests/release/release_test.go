package release

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/tests/internal/checkout"
	"github.com/flowfabric/flowfabric-go/tests/internal/modules"
)

// TestReleasedModulesInstall publishes the repository at a made-up version to a proxy in a folder. From there, with an
// empty module cache, it installs the commands and builds a program that uses the library, as a user would.
func TestReleasedModulesInstall(t *testing.T) {
	t.Parallel()
	const version = "v0.987.654"
	root := checkout.Root(t)
	if err := modules.CheckRequirements(root); err != nil {
		t.Fatal(err)
	}
	proxy, err := modules.NewProxy(root, t.TempDir(), version)
	if err != nil {
		t.Fatal(err)
	}
	usual := strings.Fields(checkout.Run(t, root, nil, "go", "env", "GOMODCACHE", "GOPROXY"))
	folder, bin := t.TempDir(), t.TempDir()
	env := []string{
		// The module cache of this machine is the second proxy: its modules are not fetched again.
		"GOPROXY=" + strings.Join([]string{proxy.URL(), "file://" + filepath.ToSlash(usual[0]) + "/cache/download", usual[1]}, ","),
		"GOMODCACHE=" + t.TempDir(),
		"GOSUMDB=off", // the contents of the module cache were checked when they got there
		// Without paths in them, the packages compiled by an earlier run can be used again.
		"GOFLAGS=-trimpath -modcacherw",
		"GOBIN=" + bin,
		"GOWORK=off",
		"GOTOOLCHAIN=local",
	}

	checkout.Run(t, folder, env, "go", "install", modules.Path("cmd/ff")+"@"+version)
	ff := filepath.Join(bin, "ff")
	if runtime.GOOS == "windows" {
		ff += ".exe"
	}
	if said := checkout.Run(t, folder, env, ff, "version"); !strings.HasPrefix(said, "ff "+version+", ") {
		t.Errorf("ff version says %q", said)
	}
	if said := checkout.Run(t, folder, env, ff, "help"); !strings.Contains(said, "ff migrate up") {
		t.Errorf("ff help says %q", said)
	}

	// As docs/schema-review.md says: without a C compiler, which takes minutes for the parser of SQL.
	checkout.Run(t, folder, append(slices.Clone(env), "CGO_ENABLED=0"), "go", "install", modules.Path("review/cmd/schema-review")+"@"+version)
	review := filepath.Join(bin, "schema-review") + filepath.Ext(ff)
	if said := checkout.Run(t, folder, env, review, "--version"); !strings.HasPrefix(said, "schema-review "+version+", ") {
		t.Errorf("schema-review --version says %q", said)
	}

	installElsewhere(t, root, env, version)

	hasLicenses(t, env, ff, "licenses")
	hasLicenses(t, env, review, "--licenses")

	program := newProgram(t, modules.Root+"/engine", modules.Root+"/worker", modules.Root+"/events", modules.Root+"/schema")
	checkout.Run(t, program.folder, env, "go", "get", modules.Root+"@"+version)
	checkout.Run(t, program.folder, env, "go", "mod", "tidy")
	checkout.Run(t, program.folder, env, "go", "build", "-o", filepath.Join(bin, "program"), ".")
	checkout.Run(t, folder, env, filepath.Join(bin, "program"))
	if built := checkout.Run(t, folder, env, "go", "version", "-m", filepath.Join(bin, "program")); !strings.Contains(built, modules.Root+"\t"+version) {
		t.Errorf("the program is not built from %s:\n%s", version, built)
	}
	readmeSteps(t, root, append(env, "DATABASE_URL="+pgtest.CloneURL(t)))
}

// installElsewhere installs the version of schema-review as the GitHub action does with its input, and as the job of GitLab.
// Their projects have a go.mod and a go.work of their own, which the go command must not use.
func installElsewhere(t *testing.T, root string, env []string, version string) {
	t.Helper()
	template, err := os.ReadFile(filepath.Join(root, "review", "gitlab", "schema-review.yml"))
	if err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(string(template), "\n    - go install ")
	line, _, ends := strings.Cut(line, "\n")
	if !found || !ends {
		t.Fatal("the job of GitLab does not install schema-review")
	}
	action := filepath.Join(root, "review", "action")
	for _, how := range [][]string{{"sh", filepath.Join(action, "install.sh")}, {"sh", "-ec", "go install " + line}} {
		project, bin := t.TempDir(), t.TempDir()
		for _, name := range []string{"go.mod", "go.work"} {
			if err := os.WriteFile(filepath.Join(project, name), []byte("not a file of Go"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var own []string // without the workspace of the tests, as elsewhere
		for _, variable := range env {
			if variable != "GOWORK=off" {
				own = append(own, variable)
			}
		}
		own = append(own, "GOWORK=", "GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0", "GOBIN="+bin, "BIN="+bin, "ACTION_PATH="+action,
			"VERSION="+version, "SCHEMA_REVIEW_VERSION="+version)
		checkout.Run(t, project, own, how[0], how[1:]...)
		installed := filepath.Join(bin, "schema-review")
		if said := checkout.Run(t, t.TempDir(), own, installed, "--version"); !strings.HasPrefix(said, "schema-review "+version+", ") {
			t.Errorf("%v: schema-review --version says %q", how, said)
		}
	}
}

// hasLicenses checks that an installed program prints, with the argument, a license for each module that it links.
func hasLicenses(t *testing.T, env []string, program, argument string) {
	t.Helper()
	folder, name := filepath.Split(program)
	licenses := checkout.Run(t, folder, env, program, argument)
	linked := 0
	for line := range strings.Lines(checkout.Run(t, folder, env, "go", "version", "-m", program)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "dep" || strings.HasPrefix(fields[1], modules.Root) {
			continue
		}
		linked++
		if !strings.Contains(licenses, "\n"+fields[1]+"\n") {
			t.Errorf("%s links %s, and %s %s does not have it", name, fields[1], name, argument)
		}
	}
	if linked < 15 {
		t.Errorf("%s links %d modules", name, linked)
	}
}

// readmeSteps runs the README's steps for a module of one's own, unchanged, in a folder beside the repository.
func readmeSteps(t *testing.T, root string, env []string) {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, steps, found := strings.Cut(string(readme), "beside a clone of this repository:\n\n```\n")
	steps, _, closed := strings.Cut(steps, "```")
	if !found || !closed {
		t.Fatal("README.md does not say how to use the library from a module of one's own")
	}
	beside := t.TempDir()
	if err := os.Symlink(root, filepath.Join(beside, "flowfabric-go")); err != nil {
		t.Fatal(err)
	}
	if said := checkout.Run(t, beside, env, "sh", "-ec", steps); !strings.Contains(said, "hello, Grace") {
		t.Errorf("the program prints %q", said)
	}
}

// TestReleaseTagsEveryModule prepares a release in a clone. The sums it writes to go.sum are those that the go command
// computes from the tags, so each module builds outside the workspace.
func TestReleaseTagsEveryModule(t *testing.T) {
	t.Parallel()
	const version = "v0.987.654"
	clone := copyRepository(t)
	if _, err := modules.Release(clone, version); err == nil || !strings.Contains(err.Error(), "CHANGELOG.md has no section") {
		t.Fatalf("a release without a section in CHANGELOG.md: %v", err)
	}
	changelog := filepath.Join(clone, "CHANGELOG.md")
	if err := os.WriteFile(changelog, []byte("# Changelog\n\n## [0.987.654] - 2026-11-25\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := modules.Release(clone, version); err == nil || !strings.Contains(err.Error(), "not committed") {
		t.Fatalf("a release of changes that are not committed: %v", err)
	}
	checkout.Run(t, clone, nil, "git", "commit", "--quiet", "--all", "--message", "changelog")
	for _, wrong := range []string{"0.1.0", "v1", "v2.0.0", "v0.1.0+build"} {
		if _, err := modules.Release(clone, wrong); err == nil {
			t.Errorf("a release of %s", wrong)
		}
	}

	tags, err := modules.Release(clone, version)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{version, "internal/drawing/" + version, "console/" + version, "internal/pgserver/" + version, "internal/pgtest/" + version, "fftest/" + version, "ffotel/" + version, "review/" + version, "cmd/ff/" + version}
	if !slices.Equal(tags, want) {
		t.Errorf("tags %v, want %v", tags, want)
	}
	for _, tag := range tags {
		if kind := checkout.Run(t, clone, nil, "git", "cat-file", "-t", tag); kind != "tag\n" {
			t.Errorf("%s is a %s, not an annotated tag", tag, kind)
		}
	}
	if _, err := modules.Release(clone, version); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second release of %s: %v", version, err)
	}
	checkout.Run(t, clone, []string{"GOFLAGS=-mod=readonly"}, "go", "list", "-m", "all") // the workspace holds together

	// The go command fetches these modules from the clone's tags, and refuses modules that go.sum does not have.
	env := []string{
		"GOWORK=off", "GOFLAGS=-mod=readonly -modcacherw", "GOSUMDB=off", "GOTOOLCHAIN=local",
		"GOMODCACHE=" + t.TempDir(),
		"GOPROXY=file://" + filepath.ToSlash(strings.TrimSpace(checkout.Run(t, clone, nil, "go", "env", "GOMODCACHE"))) + "/cache/download," +
			strings.TrimSpace(checkout.Run(t, clone, nil, "go", "env", "GOPROXY")),
		"GONOPROXY=" + modules.Root,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + clone + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + modules.Root,
	}
	checkout.Run(t, filepath.Join(clone, "cmd", "ff"), env, "go", "list", "-deps", "./...")
}

// copyRepository commits the repository's files, as they are on disk, to a repository of their own.
func copyRepository(t *testing.T) string {
	t.Helper()
	root, folder := checkout.Root(t), t.TempDir()
	checkout.Run(t, folder, nil, "git", "init", "--quiet")
	names := checkout.Run(t, root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	for name := range strings.SplitSeq(strings.TrimSuffix(names, "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	checkout.Run(t, folder, nil, "git", "config", "user.name", "test")
	checkout.Run(t, folder, nil, "git", "config", "user.email", "test@example.com")
	checkout.Run(t, folder, nil, "git", "add", "--all")
	checkout.Run(t, folder, nil, "git", "commit", "--quiet", "--message", "copy")
	return folder
}
