package project

import (
	"cmp"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing/fstest"

	"github.com/amacneil/dbmate/v2/pkg/dbmate"
	"github.com/joho/godotenv"

	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

var (
	upDirective  = regexp.MustCompile(`(?m)^--\s*migrate:up(\s*$|\s+\S+)`)
	usableFrom   = regexp.MustCompile(`(?m)^--\s*usable-from:\s*(\S+)`)
	irreversible = regexp.MustCompile(`(?m)^\s*--\s*irreversible:[ \t]*(\S.*)$`)
)

func (s *Side) readMigrations(opts Options) error {
	s.Tool = opts.Tool
	if opts.Tool == Command {
		return nil
	}
	dir, err := s.findMigrations(opts.MigrationsDir, opts.PreferredDir)
	if err != nil {
		return err
	}
	s.MigrationsTable = opts.MigrationsTable
	if s.MigrationsTable == "" {
		s.MigrationsTable = s.Tool.table()
		if s.Tool == Dbmate || s.Tool == "" {
			s.MigrationsTable = s.environment("DBMATE_MIGRATIONS_TABLE", s.MigrationsTable)
		}
	}
	if dir == "" || s.Tool == "" {
		return nil
	}
	s.MigrationsDir = dir
	return s.readFolder(dir)
}

// environment reads a variable of .env, from which dbmate reads its settings.
func (s *Side) environment(name, otherwise string) string {
	return cmp.Or(s.settings()[name], otherwise)
}

func (s *Side) settings() map[string]string {
	settings, err := godotenv.Read(filepath.Join(s.Dir, ".env"))
	if err != nil {
		return nil // dbmate refuses the file as well
	}
	return settings
}

// ChangedSettings returns the names of dbmate's settings in .env with a difference between the sides.
func ChangedSettings(base, head *Side) []string {
	was, is := base.settings(), head.settings()
	changed := map[string]bool{}
	for _, settings := range []map[string]string{was, is} {
		for name := range settings {
			if strings.HasPrefix(name, "DBMATE_") && was[name] != is[name] {
				changed[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(changed))
}

func (s *Side) readMigration(version, file, text string) (Migration, error) {
	m := Migration{Version: version, File: file, Text: text}
	m.readComments(text)
	parsed, err := (&dbmate.Migration{FileName: path.Base(file), FilePath: file, FS: textFile(text)}).Parse()
	if err != nil {
		s.Findings = append(s.Findings, report.Finding{
			Rule: rule.MigrationUnreadable.Name, Severity: report.Blocking, Place: report.Place{File: file},
			Object: version, Title: "dbmate cannot read the migration", Detail: err.Error(),
		})
		return m, nil
	}
	// A file may have several pairs of halves, one below the other.
	at := upDirective.FindStringIndex(text)[0]
	for i, section := range parsed {
		up, down := s.readHalf(file, text, at, section.Up), s.readHalf(file, text, at+len(section.Up), section.Down)
		up.Transaction, down.Transaction = section.UpOptions.Transaction(), section.DownOptions.Transaction()
		at += len(section.Up) + len(section.Down)
		if i == 0 {
			m.Up, m.Down = up, down
			continue
		}
		m.Up = m.Up.and(up)
		m.Down = m.Down.and(down)
	}
	return m, nil
}

func (h Half) and(next Half) Half {
	return Half{
		SQL:         h.SQL + next.SQL,
		Transaction: h.Transaction && next.Transaction,
		Statements:  append(h.Statements, next.Statements...),
	}
}

// readHalf splits the text at an offset into statements.
func (s *Side) readHalf(file, text string, at int, sql string) Half {
	return Half{SQL: sql, Statements: s.readStatements(placeOf(file, text, at), sql)}
}

// PlaceOf returns the line of the project an offset of m.Text is on.
func (m Migration) PlaceOf(offset int) report.Place { return placeOf(m.File, m.Text, offset) }

func placeOf(file, text string, at int) report.Place {
	return report.Place{File: file, Line: 1 + strings.Count(text[:at], "\n")}
}

// textFile is a file system with one text, under any name.
type textFile string

func (t textFile) Open(name string) (fs.File, error) {
	return fstest.MapFS{name: {Data: []byte(t)}}.Open(name)
}
