package review

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// options returns the facts of the configuration about the files.
func (r *review) options() (project.Options, error) {
	tool, err := project.ParseTool(r.Tool)
	if err != nil {
		return project.Options{}, err
	}
	if r.MigrateCommand != "" {
		if tool != "" {
			return project.Options{}, errors.New("--tool and --migrate-command exclude each other")
		}
		tool = project.Command
	}
	for _, name := range r.SQLCConfigs {
		if !filepath.IsLocal(name) {
			return project.Options{}, fmt.Errorf("%q of --sqlc-config is not a file in the project's folder", name)
		}
	}
	return project.Options{MigrationsDir: r.MigrationsDir, MigrationsTable: r.MigrationsTable, Tool: tool, SQLCConfigs: r.SQLCConfigs}, nil
}

// sameTool gives a side without migrations the tool of the other one.
func (r *review) sameTool() error {
	switch base, head := r.base, r.head; {
	case base.Tool == head.Tool:
	case len(base.Migrations) == 0:
		base.Tool, base.MigrationsTable = head.Tool, head.MigrationsTable
	case len(head.Migrations) == 0:
		head.Tool, head.MigrationsTable = base.Tool, base.MigrationsTable
	default:
		return fmt.Errorf("the migrations of the base are for %s, those of the change for %s: such a change cannot be reviewed, "+
			"unless --tool or --migrations-dir name one for both", base.Tool, head.Tool)
	}
	return nil
}

// byCommand reports whether a command of the caller's migrates the databases, so single migrations are unknown.
func (r *review) byCommand() bool { return r.MigrateCommand != "" }

// migrate applies the migrations of a side missing in the database.
func (r *review) migrate(ctx context.Context, d *database.Database, side *project.Side) error {
	if r.byCommand() {
		return d.RunCommand(ctx, side.Dir, r.MigrateCommand)
	}
	return d.Migrate(ctx, side.Migrations, side.MigrationsTable)
}

// migrateAdded applies the new migrations to a copy of base's database.
func (r *review) migrateAdded(ctx context.Context, d *database.Database) error {
	if r.byCommand() {
		return r.migrate(ctx, d, r.head)
	}
	return d.Migrate(ctx, r.added, r.head.MigrationsTable)
}

// fails is the finding for a command that succeeds on an empty database and fails on one with rows. For files, the
// rounds report this.
func fails(refusal *database.MigrationError) report.Finding {
	return report.Finding{
		Rule: rule.MigrationFailsOnRows.Name, Severity: report.Blocking, Title: "A database with rows refuses the migrations", Detail: refusal.Said(),
		Do: "Make the rows fit first, in batches, in a migration of their own; or make the statement take the rows as they are.",
	}
}
