package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/internal/words"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// psqlCommand matches pg_dump's commands for psql.
var psqlCommand = regexp.MustCompile(`(?m)^\\(restrict|unrestrict|connect)\b.*$`)

// mostDifferences is how many differences a finding lists.
const mostDifferences = 12

// CheckDump loads the committed dump of a side into conn's empty database. It compares the result with made, the
// catalog after the side's migrations. Without a dump there are no findings.
func CheckDump(ctx context.Context, side *project.Side, conn *pgx.Conn, made *Catalog) ([]report.Finding, error) {
	if side.Dump == "" {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(side.Dir, side.Dump))
	if err != nil {
		return nil, err
	}
	if side.DumpText != "" {
		text = []byte(side.DumpText)
	}
	finding := report.Finding{
		Rule: rule.DumpStale.Name, Severity: report.Risk, Place: report.Place{File: side.Dump},
		Title: "The committed dump differs from the result of the migrations",
		Do:    "Write the dump again from a migrated database: its generators and readers see another schema.",
	}
	// A dump creates functions before the objects they use.
	_, err = conn.Exec(ctx, "SET check_function_bodies = off;\n"+psqlCommand.ReplaceAllString(string(text), ""))
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		finding.Rule, finding.Title = rule.DumpUnloadable.Name, "The committed dump cannot be loaded"
		finding.Detail = fmt.Sprintf("An empty database refuses it: %v.", err)
		return []report.Finding{finding}, nil
	}
	if _, err := conn.Exec(ctx, "RESET ALL"); err != nil { // a dump sets much for its session
		return nil, err
	}
	dumped, err := Read(ctx, conn, side.MigrationsTable)
	if err != nil {
		return nil, err
	}
	differences := Diff(dumped, made)
	if len(differences) == 0 {
		return nil, nil
	}
	finding.Detail = "From the dump to the migrations:\n\n" + List(differences)
	return []report.Finding{finding}, nil
}

// List writes the first differences as a Markdown list, and how many more there are.
func List(differences []report.Change) string {
	var list strings.Builder
	shown, rest := words.Cut(differences, mostDifferences)
	for _, d := range shown {
		fmt.Fprintf(&list, "- %s `%s`", d.Kind, d.Object)
		switch {
		case d.Before == "":
			list.WriteString(": added")
		case d.After == "":
			list.WriteString(": removed")
		case d.Before == d.After:
			list.WriteString(": differs")
		default:
			fmt.Fprintf(&list, ": `%s` becomes `%s`", d.Before, d.After)
		}
		list.WriteString("\n")
	}
	if rest > 0 {
		fmt.Fprintf(&list, "- and %s\n", words.More(rest))
	}
	return strings.TrimRight(list.String(), "\n")
}
