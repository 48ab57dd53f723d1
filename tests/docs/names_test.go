package docs

import (
	"bytes"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/yuin/goldmark/ast"

	"github.com/flowfabric/flowfabric-go/ffotel"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// foreign are words in backticks that are not of this project or of PostgreSQL, with their origins.
var foreign = map[string]string{
	"OTEL_EXPORTER_OTLP_ENDPOINT": "OpenTelemetry",
	"psql":                        "PostgreSQL's client", "pg_restore --disable-triggers": "PostgreSQL's tool", "ClientRead": "a wait event of PostgreSQL",
	"tcp_keepalives_…": "settings of PostgreSQL", "COPY": "SQL", "LISTEN": "SQL",
	"query_timeout": "PgBouncer", "max_prepared_statements": "PgBouncer",
	"citus.enable_ddl_propagation": "Citus", "undistribute_table": "Citus",
	"pprof": "Go", "net/url": "Go", "database/sql": "Go", "unsafe": "Go", "C": "Go", "TestMain": "Go", "pool_max_conns": "pgx", "ImportMap": "Go", "(std)": "go list",
	"FetchBatch": "worker.Config", "pg_stat_statements": "an extension of PostgreSQL", "transaction_timeout": "PostgreSQL 17",
	"1_x.sql": "a migration", "-- +goose Up": "goose", "-- +goose Down": "goose", "-- +goose NO TRANSACTION": "goose", "StatementBegin": "goose", "StatementEnd": "goose",
	"1_x.up.sql": "golang-migrate", "1_x.down.sql": "golang-migrate", "tern": "a tool", "---- tern: disable-tx ----": "tern",
	"---- create above / drop below ----": "tern", "V1__x.sql": "Flyway", "R__x.sql": "Flyway", "U1__x.sql": "Flyway", "V1__x.sql.conf": "Flyway",
	"executeInTransaction=false": "Flyway", "atlas.sum": "Atlas", "-- atlas:txmode none": "Atlas", "not_read": "a field of a report",
	"dbmate": "a tool", "seed.yaml": "the rows of a review", "allow-unread": "an input of the GitHub action", "base": "an input of the GitHub action", ".env": "dbmate's settings", "gen: go": "sqlc",
	"pg_dump --statistics-only": "PostgreSQL 18", `psql -At -f export.sql "$PRODUCTION_URL" > statistics.json`: "PostgreSQL's client",
	"pg_execute_server_program": "a role of PostgreSQL", "pg_read_server_files": "a role of PostgreSQL", "pg_write_server_files": "a role of PostgreSQL",
	"pull_request": "GitHub", "pull_request_target": "GitHub", "workflow_run": "GitHub", "PATH": "a variable of the environment", "go install": "Go",
	"-table": "goose", "x-migrations-table": "golang-migrate", "x-multi-statement": "golang-migrate", "atlas migrate hash": "Atlas",
	"--migrations-table ffx_schema_migrations": "dbmate", "transaction:false": "dbmate", `\d+ ff_exec_core`: "psql",
	"area: change": "a commit's subject", "//pace:allow": "a directive of the tests", "## [0.1.0] - YYYY-MM-DD": "a heading of CHANGELOG.md",
	"must": "a function of the examples", "RecordOutput": "River",
	"old_…":             "a prefix",
	"cairn.instance_id": "a tag of FlowFabric 0.15", "Used by:": "a header of a query", "Locks:": "a header of a query",
	"@daily": "a cron expression", "L": "a cron expression", "L-3": "a cron expression", "15W": "a cron expression", "FRI#3": "a cron expression", "FRI#L": "a cron expression",
	"*/15 * * * *": "a cron expression", "30 2 * * *": "a cron expression",
	"L1 skips (rows FOR NO KEY UPDATE); L7 new.": "a header of a query", "waits": "a header of a query", "skips": "a header of a query", "held": "a header of a query", "new": "a header of a query",
	"ord": "a column of an input table", "usable-from": "a line of a migration", "ffx_…": "a prefix", "flowfabric_demo": "the schema of the demo",
}

// usual are the variables of examples, and their types.
var usual = map[string]string{
	"eng": "engine.Engine", "w": "worker.Worker", "job": "worker.Job", "claimer": "engine.Claimer", "kit": "fftest.Kit",
}

// names has the names of the project and its database.
type names struct {
	rooms    map[string]*types.Package // public packages, and those of pgx and google/uuid, by name
	literals map[string]bool           // strings that constants of the packages hold
	sql      map[string]bool           // tables, columns, functions, triggers, settings and keywords
	flags    map[string]bool
	targets  map[string]bool // of make
	env      map[string]bool
	tests    map[string]bool // declarations of the tests, for their own documents; those of shared packages with the package
}

func readNames(t *testing.T) *names {
	t.Helper()
	n := &names{
		rooms: make(map[string]*types.Package), literals: make(map[string]bool), sql: make(map[string]bool),
		flags: make(map[string]bool), targets: make(map[string]bool), env: make(map[string]bool), tests: make(map[string]bool),
	}
	for room, p := range sources(t) {
		for path, imported := range p.Imports {
			if strings.HasPrefix(path, "github.com/jackc/pgx/v5") || path == "github.com/google/uuid" {
				n.rooms[imported.Types.Name()] = imported.Types
			}
		}
		if room == "" || !isPublic(room) && room != "internal/core" && room != "internal/upkeep" {
			continue
		}
		for _, name := range p.Types.Scope().Names() {
			if c, ok := p.Types.Scope().Lookup(name).(*types.Const); ok && c.Val().Kind() == constant.String {
				n.literals[constant.StringVal(c.Val())] = true
			}
		}
		if isPublic(room) || room == "internal/upkeep" { // the calls that queries and pages of locks name
			n.rooms[p.Name] = p.Types
		}
	}
	conn, err := pgx.Connect(t.Context(), pgtest.CloneURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `
		SELECT relname FROM pg_class UNION SELECT attname FROM pg_attribute UNION SELECT proname FROM pg_proc
		UNION SELECT tgname FROM pg_trigger UNION SELECT typname FROM pg_type UNION SELECT name FROM pg_settings
		UNION SELECT upper(word) FROM pg_get_keywords()
		UNION SELECT c.relname || '.' || a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid WHERE c.relname LIKE 'ff%'`)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		n.sql[name] = true
	}
	for match := range matches(t, "cmd/ff/*.go", `"([a-z_]+)"`) {
		n.literals[match] = true // the texts that ff prints, and its commands
	}
	for match := range matches(t, "ffotel/names.go", `"([^"]+)"`) { // names of telemetry, in their short form and in Prometheus
		n.literals[match], n.literals[strings.TrimPrefix(match, "flowfabric.")] = true, true
		n.literals[strings.ReplaceAll(match, ".", "_")] = true
	}
	for _, m := range ffotel.Metrics() {
		n.literals[m.Prometheus()] = true
	}
	for _, span := range ffotel.Spans() {
		n.literals[span.Name] = true
	}
	for match := range matches(t, "review/internal/rule/*.go", `Name: "([a-z-]+)"`) {
		n.literals[match] = true // rules of reviews
	}
	for _, of := range []string{"db/sql/*.sql", "internal/pgtx/*.go"} {
		for match := range matches(t, of, `set_config\('(ffx\.[a-z_]+)'`) {
			n.sql[match] = true // settings of the library's own
		}
	}
	for match := range matches(t, "Makefile", `(?m)^([a-z-]+):`) {
		n.targets[match] = true
	}
	for _, pattern := range []string{"cmd/ff/*.go", "internal/*/*.go", "review/cmd/schema-review/*.go", "schema/*.go"} {
		for match := range matches(t, pattern, `"([A-Z]+_[A-Z_]+)"`) {
			n.env[match] = true
		}
	}
	for _, pattern := range []string{"tests/*/*.go", "tests/internal/*/*.go"} {
		declared := `(?m)^(?:func (?:\([^)]*\) )?|var |type )(\w+)`
		maps.Copy(n.tests, matches(t, pattern, declared))
	}
	for _, room := range []string{"fixture", "soak"} {
		for match := range matches(t, "tests/internal/"+room+"/*.go", `(?m)^func ([A-Z]\w*)`) {
			n.tests[room+"."+match] = true
		}
	}
	for _, command := range []string{"cmd/ff", "review/cmd/schema-review"} {
		for match := range matches(t, command+"/*.go", `\w\.\w+Var\(&[\w.]+, "([a-z-]+)"|Flags\(\)\.\w+\(&[\w.]+, "([a-z-]+)"`) {
			n.flags[match] = true
		}
	}
	return n
}

// matches returns the matches of a pattern's groups in files, one of them at a time.
func matches(t *testing.T, files, pattern string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, files))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %d files, error %v", files, len(paths), err)
	}
	found := make(map[string]bool)
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(pattern).FindAllSubmatch(source, -1) {
			found[string(bytes.Join(match[1:], nil))] = true
		}
	}
	return found
}

var (
	dotted   = regexp.MustCompile(`\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\b`)
	quoted   = regexp.MustCompile("\"[^\"]*\"|'[^']*'")
	upper    = regexp.MustCompile(`^[A-Z]{2,}\b`)
	sqlstate = regexp.MustCompile(`^[0-9]{2}[0-9A-Z]{3}$`)
)

// exists reports whether the text in backticks exists, in a document of the given folder.
func (n *names) exists(text, folder string) bool {
	switch {
	case folder == "tests" && n.tests[text]:
		return true
	case foreign[text] != "", n.literals[text], n.sql[text], n.env[text], sqlstate.MatchString(text):
		return true
	case strings.HasPrefix(text, "ff "), text == "ff":
		return true // TestDocsCommandsRun runs it
	case strings.HasPrefix(text, "schema-review "), text == "schema-review":
		for _, flag := range regexp.MustCompile(` --([a-z-]+)`).FindAllStringSubmatch(text, -1) {
			if !n.flags[flag[1]] && flag[1] != "help" && flag[1] != "version" {
				return false
			}
		}
		return true
	case strings.HasPrefix(text, "make "):
		for word := range strings.FieldsSeq(strings.TrimPrefix(text, "make ")) {
			if !n.targets[word] && !strings.Contains(word, "=") {
				return false
			}
		}
		return true
	case strings.HasPrefix(text, "go get "+module), strings.HasPrefix(text, "go install "+module):
		path, _, _ := strings.Cut(text[strings.Index(text, module):], "@")
		return isFile(strings.TrimPrefix(strings.TrimPrefix(path, module), "/"), ".")
	case strings.HasPrefix(text, "go run "):
		return isFile(strings.TrimPrefix(text, "go run "), ".")
	case strings.HasPrefix(text, "--"):
		flag, _, _ := strings.Cut(text[2:], " ")
		return n.flags[flag]
	case isFile(text, folder):
		return true
	case upper.MatchString(text) || strings.Contains(text, " IS ") || strings.Contains(text, "::") || strings.Contains(text, " = "):
		return n.isSQL(text)
	case n.rooms[text] != nil, text[0] == '"':
		return true
	}
	if _, err := parser.ParseExpr(text); err == nil && n.isGo(text) {
		return true
	}
	return strings.Contains(text, "(") && n.sql[text[:strings.Index(text, "(")]]
}

func isFile(text, folder string) bool {
	for _, base := range []string{".", folder} {
		if found, err := filepath.Glob(filepath.Join(root, base, text)); err == nil && len(found) > 0 && text != "*" {
			return true
		}
	}
	return false
}

// isSQL reports whether a piece of SQL is made of keywords and of names in the database, in lower case.
func (n *names) isSQL(text string) bool {
	for _, word := range dotted.FindAllString(quoted.ReplaceAllString(text, ""), -1) {
		known := n.sql[word] || n.sql[strings.ToUpper(word)]
		if !known && (word == strings.ToUpper(word) || strings.HasPrefix(word, "ff")) && len(word) > 2 {
			return false
		}
	}
	return true
}

// isGo reports whether each name in a Go expression is one of the packages.
func (n *names) isGo(text string) bool {
	text = quoted.ReplaceAllString(text, "")
	found := false
	for _, name := range dotted.FindAllString(text, -1) {
		path := strings.Split(name, ".")
		if len(path) == 1 && path[0] == strings.ToLower(path[0]) && (types.Universe.Lookup(path[0]) != nil || len(text) > len(name)) {
			continue // a keyword, a type of the language, an argument
		}
		if slices.Contains([]string{"context", "errors", "json", "slog", "time"}, path[0]) {
			found = true
			continue
		}
		if !n.resolves(path) {
			return false
		}
		found = true
	}
	return found || types.Universe.Lookup(strings.Trim(text, "*[]")) != nil
}

// resolves reports whether a name is one of a package, of a type, or of a usual variable's type.
func (n *names) resolves(path []string) bool {
	if typeName := usual[path[0]]; typeName != "" {
		path = append(strings.Split(typeName, "."), path[1:]...)
	}
	if room := n.rooms[path[0]]; room != nil && len(path) > 1 {
		object := room.Scope().Lookup(path[1])
		return object != nil && object.Exported() && has(object, path[2:])
	}
	if path[0] == strings.ToLower(path[0]) {
		return false
	}
	for _, room := range n.rooms {
		if !strings.HasPrefix(room.Path(), module) && room.Name() != "pgxpool" && room.Name() != "pgx" {
			continue
		}
		if object := room.Scope().Lookup(path[0]); object != nil && has(object, path[1:]) {
			return true
		}
		// A field or a method, named without its type.
		for _, name := range room.Scope().Names() {
			if typeName, ok := room.Scope().Lookup(name).(*types.TypeName); ok && typeName.Exported() && has(typeName, path) {
				return true
			}
		}
	}
	return false
}

// has reports whether an object has the field or method that a path leads to.
func has(object types.Object, path []string) bool {
	if len(path) == 0 {
		return true
	}
	next, _, _ := types.LookupFieldOrMethod(types.NewPointer(object.Type()), true, object.Pkg(), path[0])
	if next == nil {
		next, _, _ = types.LookupFieldOrMethod(object.Type(), true, object.Pkg(), path[0])
	}
	return next != nil && next.Exported() && has(next, path[1:])
}

// TestDocsNamesExist: all names in backticks exist.
func TestDocsNamesExist(t *testing.T) {
	t.Parallel()
	n := readNames(t)
	used := make(map[string]bool)
	for _, d := range documents(t) {
		for _, span := range d.code() {
			used[span.text] = true
			if !n.exists(span.text, filepath.Dir(d.path)) {
				t.Errorf("%s:%d: there is no %s", d.path, span.line, span.text)
			}
		}
	}
	for _, word := range slices.Sorted(maps.Keys(foreign)) {
		if !used[word] {
			t.Errorf("no document mentions %s any more", word)
		}
	}
}

// TestDocsNamesInCommentsExist: all names in backticks in a comment of the examples, of the command or of a package
// that others may import exist.
func TestDocsNamesInCommentsExist(t *testing.T) {
	t.Parallel()
	n := readNames(t)
	for _, span := range codeInComments(t) {
		if !n.exists(span.text, filepath.Dir(span.path)) {
			t.Errorf("%s: there is no %s", span.path, span.text)
		}
	}
}

// commentSpan is something in backticks in a comment of a file.
type commentSpan struct{ path, text string }

func codeInComments(t *testing.T) (spans []commentSpan) {
	t.Helper()
	span := regexp.MustCompile("`([^`\n]+)`")
	rooms := []string{"examples/*", "cmd/ff"}
	for room := range sources(t) {
		if isPublic(room) && room != "db" {
			rooms = append(rooms, room)
		}
	}
	for _, room := range rooms {
		paths, err := filepath.Glob(filepath.Join(root, room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range file.Comments {
				for _, match := range span.FindAllStringSubmatch(group.Text(), -1) {
					spans = append(spans, commentSpan{strings.TrimPrefix(path, root+"/"), match[1]})
				}
			}
		}
	}
	return spans
}

// TestDocsTablesAreWhole: a blank line between two rows of a table makes text of those behind it.
func TestDocsTablesAreWhole(t *testing.T) {
	t.Parallel()
	for _, d := range documents(t) {
		d.each(func(node ast.Node) {
			if text := d.plain(node); node.Kind() == ast.KindParagraph && strings.HasPrefix(text, "|") {
				t.Errorf("%s:%d: a row without a table: %s", d.path, d.at(d.offset(node), "").line, text)
			}
		})
	}
}

// TestDocsLinksExist: all link targets of a document exist.
func TestDocsLinksExist(t *testing.T) {
	t.Parallel()
	for _, d := range documents(t) {
		for _, link := range d.links() {
			if strings.Contains(link.text, "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link.text, "#")
			target := d.path
			if path != "" {
				target = filepath.Join(filepath.Dir(d.path), path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s:%d: %v", d.path, link.line, err)
			} else if anchor != "" && !readDocument(t, target).anchors()[anchor] {
				t.Errorf("%s:%d: %s has no heading %s", d.path, link.line, target, anchor)
			}
		}
	}
}
