package review

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"

	"github.com/flowfabric/flowfabric-go/review/internal/catalog"
	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// databases are the databases of a review. Each part with changes works on a copy, except the last part.
type databases struct {
	base, migrated *database.Database // from base's migrations, and the same with head's applied; base gets rows later
	before         *catalog.Catalog   // base's
}

// checkDatabases makes the databases and compares them. If the new migrations cannot be applied, the parts that need
// the result are skipped. generated takes the statements of the generated packages.
func (r *review) checkDatabases(ctx context.Context, generated func() error) error {
	r.say("Making the databases of before and after.")
	dbs, before, after, err := r.makeDatabases(ctx)
	if err != nil || dbs.migrated == nil {
		return err
	}
	r.report.Catalog = catalog.Diff(before, after)
	for i, c := range r.report.Catalog {
		r.report.Catalog[i].Place = project.Locate(r.added, c.Object, c.After == "" && len(r.added) == 0)
	}
	if r.byCommand() && len(r.report.Catalog) > 0 && len(r.report.NotRead) == 0 {
		r.report.NotRead = []string{"the change of the schema: " + unknownStatements}
	}
	r.find(catalog.Judge(r.report.Catalog, r.builtConcurrently)...)
	dump := r.startDump(ctx, after)
	if len(r.added) == 0 && len(r.report.Catalog) == 0 && !r.byCommand() && reflect.DeepEqual(r.base.Queries, r.head.Queries) {
		r.report.Order = report.AnyOrder
		return r.broke(ctx, "check the dump", dump()) // there are no migrations to run
	}
	if err := generated(); err != nil {
		return errors.Join(err, dump())
	}
	dbs.before = before
	return r.checkSeeded(ctx, dbs, func() error { return r.broke(ctx, "check the dump", dump()) })
}

// makeDatabases makes the empty databases. It compares the result of head's migrations on base's database with their
// result on an empty one.
func (r *review) makeDatabases(ctx context.Context) (dbs databases, before, after *catalog.Catalog, err error) {
	var fresh *database.Database
	var freshErr error
	var making sync.WaitGroup
	if !r.continues() {
		making.Go(func() { fresh, freshErr = r.make(ctx, "head", r.head) })
	}
	dbs.base, err = r.makeBase(ctx)
	making.Wait()
	if err != nil {
		return databases{}, nil, nil, r.baseRefused(ctx, err, freshErr)
	}
	if freshErr != nil {
		return databases{}, nil, nil, r.refused(ctx, freshErr)
	}
	migrated, err := r.server.Copy(ctx, dbs.base, "migrated")
	if err != nil {
		return databases{}, nil, nil, err
	}
	if err := r.migrate(ctx, migrated, r.head); err != nil {
		return databases{}, nil, nil, r.refused(ctx, err)
	}
	dbs.migrated = migrated
	var beforeErr error
	making.Go(func() { before, beforeErr = r.read(ctx, dbs.base) })
	after, err = r.read(ctx, dbs.migrated)
	making.Wait()
	if err = errors.Join(beforeErr, err); err != nil {
		return databases{}, nil, nil, err
	}
	if fresh != nil {
		err = r.compareFresh(ctx, fresh, after)
	}
	return dbs, before, after, err
}

// continues reports whether head's migrations are base's followed by others. Then both ways to head give the same
// database, since the same texts are applied in the same order.
func (r *review) continues() bool {
	if r.byCommand() || len(r.base.Migrations) > len(r.head.Migrations) {
		return false
	}
	for i, m := range r.base.Migrations {
		same := r.head.Migrations[i]
		if m.File != same.File || m.Text != same.Text {
			return false
		}
		// A file of settings beside the migration can change how its text is sent.
		if m.Up.Transaction != same.Up.Transaction || !slices.Equal(m.Up.Batches, same.Up.Batches) {
			return false
		}
	}
	return true
}

func (r *review) compareFresh(ctx context.Context, fresh *database.Database, migrated *catalog.Catalog) error {
	made, err := r.read(ctx, fresh)
	if err != nil {
		return err
	}
	if differences := catalog.Diff(migrated, made); len(differences) > 0 {
		r.find(report.Finding{
			Rule: rule.HistoryDiffers.Name, Severity: report.Blocking, Object: differences[0].Object,
			Place:  report.Place{File: r.head.MigrationsDir},
			Title:  "A new database differs from a migrated one",
			Detail: "From the migrated one to the new one:\n\n" + catalog.List(differences),
			Do:     "Leave released migrations unchanged, and put the change into a new one.",
		})
	}
	return fresh.Release(ctx)
}

func (r *review) make(ctx context.Context, label string, side *project.Side) (*database.Database, error) {
	d, err := r.server.Create(ctx, label)
	if err != nil {
		return nil, err
	}
	return d, r.migrate(ctx, d, side)
}

// refused turns a failed migration into a finding.
func (r *review) refused(ctx context.Context, err error) error {
	refusal, ok := errors.AsType[*database.MigrationError](err)
	if !ok || ctx.Err() != nil {
		return err
	}
	r.find(report.Finding{
		Rule: rule.MigrationFails.Name, Severity: report.Blocking, Place: refusal.Place, Object: refusal.Migration.Version,
		Title: "The migration cannot be applied", Detail: refusal.Said(),
		Do: "Correct the statement.",
	})
	r.skip("database", "the migrations cannot be applied, so nothing was compared, observed or planned")
	return nil
}

func (r *review) read(ctx context.Context, d *database.Database) (*catalog.Catalog, error) {
	conn, err := d.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return catalog.Read(ctx, conn, r.head.MigrationsTable)
}

// startDump checks the dump in a database of its own. wait waits for the result.
func (r *review) startDump(ctx context.Context, made *catalog.Catalog) (wait func() error) {
	if r.head.Dump == "" {
		r.skip("dump", "no dump of the schema is committed")
		return func() error { return nil }
	}
	var findings []report.Finding
	var err error
	var checking sync.WaitGroup
	checking.Go(func() { findings, err = r.checkDump(ctx, made) })
	return func() error {
		checking.Wait()
		r.find(findings...)
		return err
	}
}

func (r *review) checkDump(ctx context.Context, made *catalog.Catalog) ([]report.Finding, error) {
	d, err := r.server.Create(ctx, "dump")
	if err != nil {
		return nil, err
	}
	conn, err := d.Connect(ctx)
	if err != nil {
		return nil, err
	}
	findings, err := catalog.CheckDump(ctx, r.head, conn, made)
	return findings, errors.Join(err, conn.Close(context.WithoutCancel(ctx)), d.Release(ctx))
}
