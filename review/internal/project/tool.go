package project

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Tool is the program to apply a project's migrations.
type Tool string

// The tools the review knows.
const (
	Dbmate        Tool = "dbmate"
	Goose         Tool = "goose"
	GolangMigrate Tool = "golang-migrate"
	Tern          Tool = "tern"
	Flyway        Tool = "flyway"
	Atlas         Tool = "atlas"
	// Plain is psql on each file of a folder, in the order of their names.
	Plain Tool = "sql"
	// Command is a command of the caller's. The review does not know the migrations.
	Command Tool = "command"
)

// Tools are the tools whose files the review reads.
var Tools = []Tool{Dbmate, Goose, GolangMigrate, Tern, Flyway, Atlas, Plain}

// ParseTool reads the name of a tool. An empty name is allowed.
func ParseTool(name string) (Tool, error) {
	if name == "" || slices.Contains(Tools, Tool(name)) {
		return Tool(name), nil
	}
	return "", fmt.Errorf("%q is not a migration tool of --tool: use one of %s, or --migrate-command", name, toolNames(Tools))
}

func toolNames(tools []Tool) string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}

// table returns the default name of the tool's table of migrations.
func (t Tool) table() string {
	switch t {
	case Goose:
		return "goose_db_version"
	case Tern:
		return "schema_version"
	case Flyway:
		return "flyway_schema_history"
	case Atlas:
		return "atlas_schema_revisions"
	case Plain:
		return "ff_review_files" // psql has none
	}
	return "schema_migrations"
}

// HasDowns reports whether the tool's files hold ways down.
func (t Tool) HasDowns() bool {
	return t != Atlas && t != Plain && t != Flyway && t != Command
}

// Compare orders versions as the tool does.
func (t Tool) Compare(a, b string) int {
	if t == Atlas || t == Plain {
		return strings.Compare(a, b)
	}
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(x), len(y)) {
		var m, n string
		if i < len(x) {
			m = strings.TrimLeft(x[i], "0")
		}
		if i < len(y) {
			n = strings.TrimLeft(y[i], "0")
		}
		if c := cmp.Or(cmp.Compare(len(m), len(n)), strings.Compare(m, n)); c != 0 {
			return c
		}
	}
	return 0
}

var (
	numberedName = regexp.MustCompile(`^(\d+)[^/]*\.sql$`)
	pairName     = regexp.MustCompile(`^(\d+)_(.*)\.(up|down)\.([^/]*)$`) // golang-migrate takes every extension
	ternName     = regexp.MustCompile(`^(\d+)_.+\.sql$`)
	flywayName   = regexp.MustCompile(`^([VUB])(\d+(?:[._]\d+)*)__.*\.sql$`)
	repeatedName = regexp.MustCompile(`^R__.*\.sql$`)
	gooseUp      = regexp.MustCompile(`(?mi)^--[ \t]*\+goose[ \t]+Up[ \t]*\r?$`)
	gooseInGo    = regexp.MustCompile(`\bgoose\.Add(Named)?Migration`)
	foreignMark  = regexp.MustCompile(`(?mi)^--[ \t]*(\+migrate|\+micrate|\+\w+[ \t]+(up|down)\b|rambler[ \t]+(up|down)|liquibase[ \t]+formatted|//[ \t]*@undo|@down\b|//[ \t]*@down)`)
)

const ternSeparator = "---- create above / drop below ----"

// marks returns the tools of a file, by name or text.
func marks(name, text string) []Tool {
	var found []Tool
	add := func(t Tool, is bool) {
		if is && !slices.Contains(found, t) {
			found = append(found, t)
		}
	}
	switch {
	case name == "atlas.sum":
		return []Tool{Atlas}
	case name == "tern.conf":
		return []Tool{Tern}
	case strings.HasSuffix(name, ".go"):
		add(Goose, gooseInGo.MatchString(text))
		return found
	case !strings.HasSuffix(name, ".sql"):
		return nil
	}
	add(GolangMigrate, pairName.MatchString(name))
	add(Flyway, flywayName.MatchString(name) || repeatedName.MatchString(name))
	add(Dbmate, numberedName.MatchString(name) && upDirective.MatchString(text))
	add(Goose, numberedName.MatchString(name) && gooseUp.MatchString(text))
	add(Tern, ternName.MatchString(name) && strings.Contains(text, ternSeparator))
	return found
}

// folder has the facts from which the tool of a folder is decided.
type folder struct {
	marked   []Tool
	numbered int    // SQL files beginning with a number
	other    int    // other SQL files
	foreign  string // a file with the marks of a tool the review does not know
}

func (f *folder) add(name, text string) {
	for _, t := range marks(name, text) {
		if !slices.Contains(f.marked, t) {
			f.marked = append(f.marked, t)
		}
	}
	switch {
	case !strings.HasSuffix(name, ".sql"):
	case numberedName.MatchString(name):
		f.numbered++
	default:
		f.other++
	}
	if f.foreign == "" && strings.HasSuffix(name, ".sql") && foreignMark.MatchString(text) && !gooseUp.MatchString(text) {
		f.foreign = name
	}
}

// tool decides which tool a folder belongs to. Empty: there are no migrations.
func (f *folder) tool(dir string) (Tool, error) {
	slices.Sort(f.marked)
	switch {
	case len(f.marked) > 1:
		return "", fmt.Errorf("the files of %s look like migrations of several tools: name the right one with --tool: %s", dir, toolNames(f.marked))
	case len(f.marked) == 1:
		return f.marked[0], nil
	case f.foreign != "":
		return "", fmt.Errorf("%s/%s has the marks of a migration tool that the review does not know: "+
			"apply the migrations with --migrate-command", dir, f.foreign)
	case f.numbered > 0:
		return Plain, nil
	}
	return "", nil
}

// number returns a version as a number, without leading zeros.
func number(version string) string {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return version
	}
	return strconv.FormatUint(n, 10)
}
