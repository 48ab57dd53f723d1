package project

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/amacneil/dbmate/v2/pkg/dbmate"
	"github.com/joho/godotenv"

	"github.com/flowfabric/flowfabric-go/review/report"
)

var (
	migrationName = regexp.MustCompile(`^(\d+).*\.sql$`) // dbmate's
	upDirective   = regexp.MustCompile(`(?m)^--\s*migrate:up(\s*$|\s+\S+)`)
	downDirective = regexp.MustCompile(`(?m)^--\s*migrate:down(\s*$|\s+\S+)`)
	usableFrom    = regexp.MustCompile(`(?m)^--\s*usable-from:\s*(\S+)`)
	irreversible  = regexp.MustCompile(`(?m)^\s*--\s*irreversible:[ \t]*(\S.*)$`)
)

func (s *Side) readMigrations(opts Options) error {
	s.MigrationsTable = opts.MigrationsTable
	if s.MigrationsTable == "" {
		s.MigrationsTable = s.environment("DBMATE_MIGRATIONS_TABLE", "schema_migrations")
	}
	dir, err := s.findMigrations(opts.MigrationsDir)
	if err != nil || dir == "" {
		return err
	}
	s.MigrationsDir = dir
	entries, err := os.ReadDir(filepath.Join(s.Dir, dir))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		parts := migrationName.FindStringSubmatch(entry.Name())
		if entry.IsDir() || parts == nil || strings.HasSuffix(entry.Name(), ".down.sql") {
			continue
		}
		file := path.Join(dir, entry.Name())
		text, err := s.dbmateForm(file)
		if err != nil {
			return err
		}
		m, err := s.readMigration(parts[1], file, text)
		if err != nil {
			return err
		}
		s.Migrations = append(s.Migrations, m)
	}
	return nil
}

// environment reads a variable of .env, from which dbmate reads its settings.
func (s *Side) environment(name, otherwise string) string {
	settings, err := godotenv.Read(filepath.Join(s.Dir, ".env"))
	if value := settings[name]; err == nil && value != "" {
		return value
	}
	return otherwise
}

// findMigrations returns the folder with the migrations: the wanted one, or the only one of the project.
func (s *Side) findMigrations(wanted string) (string, error) {
	if wanted != "" {
		if _, err := os.Stat(filepath.Join(s.Dir, wanted)); errors.Is(err, fs.ErrNotExist) {
			return "", nil // the change creates it
		}
		return path.Clean(filepath.ToSlash(wanted)), nil
	}
	found := map[string]bool{}
	err := fs.WalkDir(os.DirFS(s.Dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch base := entry.Name(); {
			case base == "testdata", base == "vendor", base == "node_modules", len(base) > 1 && base[0] == '.':
				return fs.SkipDir
			}
			return nil
		}
		if migrationName.MatchString(entry.Name()) && !found[path.Dir(name)] {
			text, err := os.ReadFile(filepath.Join(s.Dir, name))
			if err != nil {
				return err
			}
			found[path.Dir(name)] = formOf(name, string(text)) != unknown
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	var dirs []string
	for dir, holds := range found {
		if holds {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	if usual := s.environment("DBMATE_MIGRATIONS_DIR", "db/migrations"); len(dirs) > 1 && slices.Contains(dirs, path.Clean(usual)) {
		return path.Clean(usual), nil
	}
	if len(dirs) > 1 {
		return "", fmt.Errorf("several folders hold migrations, and one has to be named: %s", strings.Join(dirs, ", "))
	}
	return strings.Join(dirs, ""), nil
}

func (s *Side) readMigration(version, file, text string) (Migration, error) {
	m := Migration{Version: version, File: file, Text: text}
	if found := usableFrom.FindStringSubmatch(text); found != nil {
		m.Usable = found[1]
	}
	if found := irreversible.FindStringSubmatch(text); found != nil {
		m.Irreversible = strings.TrimSpace(found[1])
	}
	parsed, err := (&dbmate.Migration{FileName: path.Base(file), FilePath: file, FS: textFile(text)}).Parse()
	if err != nil {
		s.Findings = append(s.Findings, report.Finding{
			Rule: "migration-unreadable", Severity: report.Blocking, Place: report.Place{File: file},
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
	place := placeOf(file, text, at)
	statements, err := Split(sql, place)
	if err != nil {
		s.Findings = append(s.Findings, report.Finding{
			Rule: "migration-unreadable", Severity: report.Blocking, Place: place,
			Title: "The parser cannot read the migration", Detail: err.Error(),
			Do: "Correct the statement. One that a newer PostgreSQL than the parser's knows cannot be reviewed.",
		})
	}
	return Half{SQL: sql, Statements: statements}
}
