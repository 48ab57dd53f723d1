package project

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// reader reads the files of one tool's folder.
type reader struct {
	*Side
	dir   string
	names []string        // of the files, relative to dir
	used  map[string]bool // those read
}

// text reads a file of the folder, with the lines of Unix.
func (r *reader) text(name string) (string, error) {
	r.used[name] = true
	raw, err := os.ReadFile(filepath.Join(r.Dir, r.dir, name))
	return strings.ReplaceAll(string(raw), "\r\n", "\n"), err
}

// readFolder reads the migrations of the folder, in the tool's order.
func (s *Side) readFolder(dir string) error {
	names, err := s.filesOf(dir, s.Tool == Flyway)
	if err != nil {
		return err
	}
	r := &reader{Side: s, dir: dir, names: names, used: map[string]bool{}}
	read := map[Tool]func(name string) error{
		Dbmate: r.dbmate, Goose: r.goose, GolangMigrate: r.pair, Tern: r.tern, Flyway: r.flyway, Atlas: r.atlas, Plain: r.plain,
	}[s.Tool]
	for _, name := range names {
		if r.used[name] {
			continue
		}
		if err := read(name); err != nil {
			return err
		}
	}
	slices.SortStableFunc(s.Migrations, func(a, b Migration) int {
		switch {
		case s.Tool == Dbmate:
			return 0 // already in the order of the names
		case a.Repeatable != b.Repeatable:
			return map[bool]int{true: 1, false: -1}[a.Repeatable]
		case a.Repeatable:
			return strings.Compare(a.Version, b.Version)
		}
		return s.Tool.Compare(a.Version, b.Version)
	})
	r.checkTern()
	r.reportUnread()
	return nil
}

// checkTern reports a gap in tern's numbers, because of which tern applies nothing.
func (r *reader) checkTern() {
	if r.Tool != Tern {
		return
	}
	for i, m := range r.Migrations {
		if m.Version != strconv.Itoa(i+1) {
			r.Findings = append(r.Findings, report.Finding{
				Rule: rule.MigrationUnreadable.Name, Severity: report.Blocking, Place: report.Place{File: m.File}, Object: m.Version,
				Title: "tern refuses the migrations", Detail: fmt.Sprintf("This is migration %d in order, but its number is %s.", i+1, m.Version),
				Do: "Number the files from 1 on, without a gap.",
			})
			return
		}
	}
}

// filesOf lists the files of a folder, by name.
func (s *Side) filesOf(dir string, deep bool) ([]string, error) {
	var names []string
	root := filepath.Join(s.Dir, dir)
	err := filepath.WalkDir(root, func(file string, entry os.DirEntry, err error) error {
		if err != nil || file == root {
			return err
		}
		name, err := filepath.Rel(root, file)
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			names = append(names, filepath.ToSlash(name))
		case !deep:
			names = append(names, filepath.ToSlash(name)+"/")
			return filepath.SkipDir
		}
		return nil
	})
	return names, err
}

// add adds a migration of a tool other than dbmate.
func (r *reader) add(name, version, text string) *Migration {
	m := Migration{Tool: r.Tool, Version: version, File: path.Join(r.dir, name), Text: text}
	m.readComments(text)
	r.Migrations = append(r.Migrations, m)
	return &r.Migrations[len(r.Migrations)-1]
}

func (r *reader) dbmate(name string) error {
	parts := numberedName.FindStringSubmatch(name)
	if parts == nil {
		return nil
	}
	text, err := r.text(name)
	if err != nil {
		return err
	}
	m, err := r.readMigration(parts[1], path.Join(r.dir, name), text)
	m.Tool = Dbmate
	r.Migrations = append(r.Migrations, m)
	return err
}

// pair reads golang-migrate's N_name.up.sql with the N_name.down.sql of its number. Each is sent as one text, without a
// transaction.
func (r *reader) pair(name string) error {
	parts := pairName.FindStringSubmatch(name)
	if parts == nil || parts[3] != "up" {
		return nil
	}
	text, err := r.text(name)
	if err != nil {
		return err
	}
	m := r.add(name, number(parts[1]), text)
	m.Up = r.half(m.File, []segment{{text, 1}}, false, false)
	down := ""
	for _, other := range r.names {
		way := pairName.FindStringSubmatch(other)
		switch {
		case way == nil || way[3] != "down" || number(way[1]) != m.Version:
		case down != "":
			r.used[other] = true
			r.Findings = append(r.Findings, report.Finding{
				Rule: rule.MigrationUnreadable.Name, Severity: report.Blocking, Place: report.Place{File: path.Join(r.dir, other)}, Object: m.Version,
				Title: "golang-migrate refuses the migrations", Detail: fmt.Sprintf("`%s` is a way down of the same number.", path.Join(r.dir, down)),
				Do: "Keep one of them.",
			})
		default:
			down = other
		}
	}
	if down == "" {
		return nil
	}
	if text, err = r.text(down); err != nil {
		return err
	}
	m.readComments(text)
	m.Down = r.half(path.Join(r.dir, down), []segment{{text, 1}}, false, false)
	return nil
}

var (
	ternBare     = regexp.MustCompile(`(?m)^---- tern: disable-tx ----$`)
	ternTemplate = regexp.MustCompile(`\{\{`)
)

func (r *reader) tern(name string) error {
	parts := ternName.FindStringSubmatch(name)
	if parts == nil {
		return nil
	}
	text, err := r.text(name)
	if err != nil {
		return err
	}
	m := r.add(name, number(parts[1]), text)
	if ternTemplate.MatchString(text) {
		r.unread(m.File, "tern's templates are not filled in: give --migrate-command")
	}
	up, down, _ := strings.Cut(text, ternSeparator)
	halfOf := func(text string, line int) Half {
		bare := ternBare.MatchString(text)
		return r.half(m.File, []segment{{text, line}}, !bare, bare)
	}
	m.Up = halfOf(up, 1)
	m.Down = halfOf(down, 1+strings.Count(up, "\n"))
	return nil
}

var (
	flywaySetting     = regexp.MustCompile(`(?mi)^\s*executeInTransaction\s*[=:]\s*(true|false)\s*$`)
	flywayPlaceholder = regexp.MustCompile(`\$\{[\w.:]+\}`)
	// flywayOutside are the statements for which Flyway leaves out the transaction.
	flywayOutside = regexp.MustCompile(`(?is)^(?:(?:CREATE|DROP)(?:\s+UNIQUE)?\s+INDEX\s+CONCURRENTLY\b|REINDEX(?:\s+VERBOSE)?\s+(?:SCHEMA|DATABASE|SYSTEM)\b|VACUUM\b|ALTER\s+SYSTEM\b|(?:CREATE|DROP)\s+(?:DATABASE|TABLESPACE|SUBSCRIPTION)\b|DISCARD\s+ALL\b)`)
)

// flyway reads a versioned migration with its undo migration, or a repeatable one.
func (r *reader) flyway(name string) error {
	parts := flywayName.FindStringSubmatch(path.Base(name))
	repeated := repeatedName.MatchString(path.Base(name))
	switch {
	case parts == nil && !repeated, parts != nil && parts[1] == "U":
		return nil
	case parts != nil && parts[1] == "B":
		r.used[name] = true
		r.unread(path.Join(r.dir, name), "a baseline: the review makes new databases from the versioned migrations")
		return nil
	}
	text, err := r.text(name)
	if err != nil {
		return err
	}
	version := strings.TrimSuffix(path.Base(name), ".sql")
	if !repeated {
		version = strings.ReplaceAll(parts[2], "_", ".")
	}
	m := r.add(name, version, text)
	m.Repeatable = repeated
	if m.Up, err = r.flywayHalf(name, text); err != nil || repeated {
		return err
	}
	for _, other := range r.names {
		undo := flywayName.FindStringSubmatch(path.Base(other))
		if undo == nil || undo[1] != "U" || strings.ReplaceAll(undo[2], "_", ".") != version {
			continue
		}
		if text, err = r.text(other); err != nil {
			return err
		}
		m.readComments(text)
		m.Down, err = r.flywayHalf(other, text)
	}
	return err
}

func (r *reader) flywayHalf(name, text string) (Half, error) {
	file := path.Join(r.dir, name)
	if flywayPlaceholder.MatchString(text) {
		r.unread(file, "Flyway's placeholders are not replaced: give --migrate-command")
	}
	whole := r.half(file, []segment{{text, 1}}, true, false)
	outside := 0
	for _, s := range whole.Statements {
		if flywayOutside.MatchString(s.SQL) {
			outside++
		}
	}
	bare := outside > 0
	said := false
	if slices.Contains(r.names, name+".conf") {
		settings, err := r.text(name + ".conf")
		if err != nil {
			return Half{}, err
		}
		if found := flywaySetting.FindStringSubmatch(settings); found != nil {
			bare, said = strings.EqualFold(found[1], "false"), true
		}
	}
	if !said && bare && outside < len(whole.Statements) {
		r.Findings = append(r.Findings, report.Finding{
			Rule: rule.MigrationUnreadable.Name, Severity: report.Blocking, Place: report.Place{File: file},
			Title:  "Flyway refuses the migration",
			Detail: "It has statements that need a transaction of their own beside others, and `mixed` is false.",
			Do:     "Move the others into a migration of their own, or write `executeInTransaction=false` into `" + name + ".conf`.",
		})
	}
	if bare {
		whole.separate()
	}
	return whole, nil
}

var (
	atlasMode       = regexp.MustCompile(`(?m)^-- atlas:txmode +(\w+) *$`)
	atlasCheckpoint = regexp.MustCompile(`(?m)^-- atlas:checkpoint\b`)
)

func (r *reader) atlas(name string) error {
	if !strings.HasSuffix(name, ".sql") {
		return nil
	}
	text, err := r.text(name)
	if err != nil {
		return err
	}
	// The directives of a file end with an empty line.
	header, _, _ := strings.Cut(text, "\n\n")
	if atlasCheckpoint.MatchString(header) {
		r.unreadIfChanged(path.Join(r.dir, name), "a checkpoint: the review makes new databases from the migrations before it")
		return nil
	}
	version, _, _ := strings.Cut(strings.TrimSuffix(name, ".sql"), "_")
	m := r.add(name, version, text)
	mode := atlasMode.FindStringSubmatch(header)
	bare := mode != nil && mode[1] == "none"
	m.Up = r.half(m.File, []segment{{text, 1}}, !bare, bare)
	return nil
}

var (
	backName    = regexp.MustCompile(`(?i)(^|[._-])(down|rollback|undo|revert)([._-]|$)`)
	psqlCommand = regexp.MustCompile(`(?m)^[ \t]*\\\w`)
)

// plain reads a file for psql, a statement at a time.
func (r *reader) plain(name string) error {
	if !strings.HasSuffix(name, ".sql") {
		return nil
	}
	file := path.Join(r.dir, name)
	if backName.MatchString(strings.TrimSuffix(name, ".sql")) {
		r.used[name] = true
		r.unread(file, "it looks like a way back, which the review does not run for a folder of SQL files")
		return nil
	}
	text, err := r.text(name)
	if err != nil {
		return err
	}
	if psqlCommand.MatchString(text) {
		r.unread(file, "psql's commands are not run: give --migrate-command")
	}
	m := r.add(name, strings.TrimSuffix(name, ".sql"), text)
	m.Up = r.half(file, []segment{{text, 1}}, false, true)
	return nil
}
