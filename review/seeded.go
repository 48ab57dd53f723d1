package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/observe"
	"github.com/flowfabric/flowfabric-go/review/internal/plans"
	"github.com/flowfabric/flowfabric-go/review/internal/rolling"
	"github.com/flowfabric/flowfabric-go/review/internal/rounds"
	"github.com/flowfabric/flowfabric-go/review/internal/seed"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// checkSeeded runs the parts that need rows. dumped waits for the part about the dump, which runs meanwhile.
func (r *review) checkSeeded(ctx context.Context, dbs databases, dumped func() error) error {
	r.say("Filling the database of before with rows.")
	filled, err := r.fill(ctx, &dbs)
	if err := dumped(); err != nil {
		return err
	}
	if err != nil {
		if err := r.broke(ctx, "fill the database with rows", err); err != nil {
			return err
		}
		filled = &seed.Result{} // the other parts run on empty tables
	}
	r.notSeeded(filled)
	defer r.addProduction(filled)
	if len(r.added) > 0 {
		if err := r.broke(ctx, "observe the migrations", r.observe(ctx, dbs, filled)); err != nil {
			return err
		}
	}
	taken, err := r.startRounds(ctx, dbs)
	if err := r.broke(ctx, "take the migrations up and down", err); err != nil {
		return err
	}
	err = r.broke(ctx, "check the queries", r.checkQueries(ctx, dbs))
	return errors.Join(err, r.broke(ctx, "take the migrations up and down", taken()))
}

// observe runs the new migrations statement by statement. Nothing else may run: all writes of the server count.
func (r *review) observe(ctx context.Context, dbs databases, filled *seed.Result) error {
	r.say("Running the new migrations, a statement at a time.")
	return r.onCopy(ctx, dbs.base, "observed", func(d *database.Database) error {
		seen, err := observe.Check(ctx, d.Connect, observe.Options{
			Migrations: r.added,
			Queries:    r.base.Queries,
			Small:      r.small(filled),
		})
		if err != nil {
			return err
		}
		r.report.Statements = seen.Statements
		r.report.Findings = observe.Replace(r.report.Findings, seen)
		r.find(seen.Findings...)
		for _, line := range seen.Skipped {
			r.skip("locks", "%s", line)
		}
		return nil
	})
}

// startRounds takes the migrations up, down and up on a copy, while the queries are checked. wait waits for the result.
func (r *review) startRounds(ctx context.Context, dbs databases) (wait func() error, err error) {
	wait = func() error { return nil }
	if len(r.added) == 0 {
		return wait, nil
	}
	d, err := r.server.Copy(ctx, dbs.base, "rounds")
	if err != nil {
		return wait, err
	}
	r.say("Taking the migrations up, down and up.")
	var findings []report.Finding
	var failed error
	var taking sync.WaitGroup
	taking.Go(func() {
		findings, failed = rounds.Check(ctx, rounds.Input{Database: d, Table: r.head.MigrationsTable, New: r.added})
		failed = errors.Join(failed, d.Release(context.WithoutCancel(ctx)))
	})
	return func() error {
		taking.Wait()
		r.find(findings...)
		return failed
	}, nil
}

// checkQueries checks the queries on the database with rows and on a copy of it with the new migrations. If the rows
// make the migrations fail, which is a finding already, there is no copy: nothing is planned, and queries run on
// empty tables.
func (r *review) checkQueries(ctx context.Context, dbs databases) error {
	if len(r.base.Queries)+len(r.head.Queries) == 0 {
		r.skip("queries", "there are none, so nothing is planned and tried")
		r.report.Order = report.AnyOrder
		return nil
	}
	return r.onCopy(ctx, dbs.base, "after", func(after *database.Database) error {
		err := r.migrateAdded(ctx, after)
		if refusal, ok := errors.AsType[*database.MigrationError](err); ok {
			r.skip("plans", "the rows hinder %s", cmp.Or(refusal.Migration.File, "the command"))
			if r.byCommand() {
				r.find(fails(refusal))
			}
			empty, err := r.make(ctx, "empty", r.base)
			if err != nil {
				return err
			}
			return r.roll(ctx, empty, dbs.migrated, false)
		}
		if err != nil {
			return err
		}
		if err := r.fillOne(ctx, after, r.spec, r.seedOptions(r.head)); err != nil {
			return fmt.Errorf("fill the new tables with rows: %w", err)
		}
		if err := r.broke(ctx, "plan the queries", r.plan(ctx, dbs.base, after)); err != nil {
			return err
		}
		return r.roll(ctx, dbs.base, after, true)
	})
}

func (r *review) plan(ctx context.Context, before, after *database.Database) error {
	r.say("Comparing the plans of the queries.")
	result, err := plans.Check(ctx, plans.Input{
		Base: r.base, Head: r.head,
		Before: before.URL, After: after.URL,
		Large: seed.LargeFrom(r.spec, seed.Options{Rows: r.Rows}), Settings: r.spec.Settings,
		Sized: r.spec.Sized,
	})
	if err != nil {
		return fmt.Errorf("compare the plans: %w", err)
	}
	r.report.Plans = result.Changes
	r.find(result.Findings...)
	for _, line := range result.Skipped {
		r.skip("plans", "%s", line)
	}
	return nil
}

// roll runs the queries of each side on the schema of the other. copied: after was copied from before.
func (r *review) roll(ctx context.Context, before, after *database.Database, copied bool) error {
	r.say("Running the queries of before on the schema of after, and the other way round.")
	result, err := rolling.Check(ctx, rolling.Input{
		Base: r.base, Head: r.head,
		Before: before.URL, After: after.URL, Copied: copied, Settings: r.spec.Settings,
	})
	if err != nil {
		return fmt.Errorf("try the deploy order: %w", err)
	}
	r.report.Order, r.report.Declared = result.Order, result.Declared
	r.find(result.Findings...)
	for _, line := range result.Skipped {
		r.skip("deploy order", "%s", line)
	}
	return nil
}

// onCopy runs fn on a copy of a database, which it releases afterwards.
func (r *review) onCopy(ctx context.Context, of *database.Database, label string, fn func(*database.Database) error) error {
	d, err := r.server.Copy(ctx, of, label)
	if err != nil {
		return err
	}
	return errors.Join(fn(d), d.Release(context.WithoutCancel(ctx)))
}
