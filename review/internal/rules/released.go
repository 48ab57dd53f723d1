package rules

import (
	"fmt"
	"slices"

	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/pgquery"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// released compares the migrations of base with head's under their versions.
func released(base, head *project.Side) []report.Finding {
	var found []report.Finding
	for _, was := range base.Migrations {
		if was.Repeatable {
			continue // changes are allowed
		}
		is := named(head.Migrations, was)
		place := report.Place{File: was.File}
		switch {
		case is == nil:
			found = append(found, report.Finding{
				Rule: rule.ReleasedMigrationRemoved.Name, Severity: report.Blocking, Place: place, Object: was.Version,
				Title:  "A released migration is gone",
				Detail: "Databases have it, and a new one would be made without it.",
				Do:     "Put the file back. Undo its effects in a new migration.",
			})
		case was.File != is.File && !same(was.Up, is.Up):
			found = append(found, collision(*is, was.File, "on the base branch"))
		case !same(was.Up, is.Up):
			place = report.Place{File: is.File, Line: firstDifference(was.Up, is.Up)}
			found = append(found, report.Finding{
				Rule: rule.ReleasedMigrationChanged.Name, Severity: report.Blocking, Place: place, Object: was.Version,
				Title:  "A released migration is changed",
				Detail: "Databases that have it never run the new text: they and new ones would differ.",
				Do:     "Put the text back, and write a new migration.",
			})
		case !same(was.Down, is.Down):
			found = append(found, report.Finding{
				Rule: rule.ReleasedWayDownChanged.Name, Severity: report.Advice, Object: was.Version,
				Place:  report.Place{File: is.File, Line: firstDifference(was.Down, is.Down)},
				Title:  "The way down of a released migration is changed",
				Detail: "Databases that are rolled back from now on take the new way.",
			})
		}
	}
	return found
}

// named returns the migration corresponding to an earlier one: by version, and among several, by file name.
func named(all []project.Migration, was project.Migration) *project.Migration {
	var found *project.Migration
	for i := range all {
		if all[i].Version == was.Version && (found == nil || all[i].File == was.File) {
			found = &all[i]
		}
	}
	return found
}

func same(a, b project.Half) bool {
	return a.Transaction == b.Transaction && slices.Equal(words(a.SQL), words(b.SQL))
}

// words returns the tokens of a text, without comments. If the scanner refuses the text, it is one word.
func words(sql string) []string {
	scanned, err := pgquery.Scan(sql)
	if err != nil {
		return []string{sql}
	}
	var all []string
	for _, t := range scanned.Tokens {
		if t.Token != parser.Token_SQL_COMMENT && t.Token != parser.Token_C_COMMENT {
			all = append(all, sql[t.Start:t.End])
		}
	}
	return all
}

// firstDifference is the line of the first new or changed statement. 0: only some are missing.
func firstDifference(was, is project.Half) int {
	for i, s := range is.Statements {
		if i >= len(was.Statements) || !slices.Equal(words(was.Statements[i].SQL), words(s.SQL)) {
			return s.Place.Line
		}
	}
	return 0
}

// versions finds versions used by two files, and versions that come too late.
func versions(base, head, target *project.Side) []report.Finding {
	var found []report.Finding
	files := map[string]string{}
	for _, m := range head.Migrations {
		if other, twice := files[m.Version]; twice {
			found = append(found, collision(m, other, "in the change"))
		}
		files[m.Version] = m.File
	}
	later := func(a, b string) bool { return b == "" || head.Tool.Compare(a, b) > 0 }
	newest := ""
	for _, m := range target.Migrations {
		if !m.Repeatable && later(m.Version, newest) {
			newest = m.Version
		}
	}
	for _, m := range head.Migrations {
		if m.Repeatable {
			continue
		}
		was := named(base.Migrations, m)
		theirs := named(target.Migrations, m)
		switch {
		case was == nil && theirs != nil && theirs.File != m.File:
			found = append(found, collision(m, theirs.File, "on the base branch"))
		case was == nil && theirs == nil && newest != "" && later(newest, m.Version):
			found = append(found, report.Finding{
				Rule: rule.MigrationOutOfOrder.Name, Severity: report.Risk, Place: report.Place{File: m.File}, Object: m.Version,
				Title:  "The version is lower than one that databases have",
				Detail: fmt.Sprintf("The base branch is at %s. Old databases run this one after it, new ones before it.", newest),
				Do:     "Give the file a version above it.",
			})
		}
	}
	return found
}

func collision(m project.Migration, other, where string) report.Finding {
	return report.Finding{
		Rule: rule.MigrationVersionTwice.Name, Severity: report.Blocking, Place: report.Place{File: m.File}, Object: m.Version,
		Title:  "Two migrations have one version",
		Detail: fmt.Sprintf("`%s` has it %s. A database that has run one of them never runs the other.", other, where),
		Do:     "Give the newer file a version of its own, above all others.",
	}
}
