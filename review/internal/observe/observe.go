package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rules"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Options are the parameters of [Check].
type Options struct {
	// Migrations are the new ones, in order.
	Migrations []project.Migration
	// Queries are base's, from the programs running during the deployment.
	Queries []project.Query
	// Small reports a table that stays small in every deployment of the project: work on the rows takes no time. The name
	// is in SQL syntax. Nil: no table is small.
	Small func(table string) bool
}

// Result has the observations.
type Result struct {
	Statements []report.Statement
	Findings   []report.Finding
	// Skipped are sentences about unobserved steps.
	Skipped []string
}

// Check runs the migrations on a database with base's schema and rows. Check leaves the database at head's schema, as
// far as the statements succeeded. connect opens sessions on the database, eight at most; there may be no other session
// meanwhile.
//
// After an error there is no result: the server failed, or ctx ended. A failed statement is reported, and later ones
// are tried nevertheless.
func Check(ctx context.Context, connect func(context.Context) (*pgx.Conn, error), opts Options) (_ *Result, err error) {
	o := &observation{Options: opts, connect: connect, result: new(Result), seen: map[string][]report.Waiting{}}
	defer func() {
		for _, conn := range o.open {
			// The sessions end with the review; an error of closing changes nothing.
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	if o.main, err = o.session(ctx); err != nil {
		return nil, err
	}
	if o.watch, err = o.session(ctx); err != nil {
		return nil, err
	}
	if o.old, err = readRelations(ctx, o.watch); err != nil {
		return nil, fmt.Errorf("read the relations: %w", err)
	}
	triggers, err := readTriggers(ctx, o.watch)
	if err != nil {
		return nil, err
	}
	if err := o.readNeeds(ctx); err != nil {
		return nil, err
	}
	for _, m := range opts.Migrations {
		if err := o.migration(ctx, m); err != nil {
			return nil, fmt.Errorf("%s: %w", m.File, err)
		}
	}
	if err := o.newTriggers(ctx, triggers); err != nil {
		return nil, err
	}
	slices.SortStableFunc(o.result.Findings, func(a, b report.Finding) int {
		return cmp.Or(a.Place.Compare(b.Place), cmp.Compare(a.Rule, b.Rule))
	})
	return o.result, nil
}

// observation is one run of [Check].
type observation struct {
	Options
	connect func(context.Context) (*pgx.Conn, error)
	open    []*pgx.Conn
	main    *pgx.Conn // runs the statements
	watch   *pgx.Conn // sees the locks of main
	trying  []*pgx.Conn
	turn    sync.Mutex // held by the running, not only analysed query
	old     relations
	needs   []need
	seen    map[string][]report.Waiting // by the locked relations
	result  *Result
}

// session opens a session with settings for equal runs: parallel workers would count on their own.
func (o *observation) session(ctx context.Context) (*pgx.Conn, error) {
	conn, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	o.open = append(o.open, conn)
	return conn, settle(ctx, conn)
}

const settings = `
	SET lock_timeout = '60s'; SET statement_timeout = 0; SET max_parallel_maintenance_workers = 0;
	SET max_parallel_workers_per_gather = 0; SET jit = off; SET client_min_messages = error;
	SELECT set_config('track_counts', 'on', false) WHERE current_setting('track_counts') <> 'on'`

func settle(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.PgConn().Exec(ctx, settings).ReadAll()
	return err
}

// running is the state of a running migration.
type running struct {
	project.Migration
	sending  *rules.Sending
	together bool // the statements need one transaction
	// held are the locks of the transaction so far, by statement: the sum counts in one transaction.
	held held
	by   map[uint32]report.Place
	kept held // locks already reported as held too long
	// untimed are the statements with locks without a timeout.
	untimed []seen
}

// seen has the observations of a statement.
type seen struct {
	project.Statement
	tree     ddl.Statement
	held     held
	did      did
	outside  bool
	measured report.Measured
}

func (o *observation) migration(ctx context.Context, m project.Migration) error {
	run := &running{Migration: m, sending: rules.Follow(m.Up), held: held{}, kept: held{}, by: map[uint32]report.Place{}}
	trees := make([]ddl.Statement, len(m.Up.Statements))
	for i, s := range m.Up.Statements {
		tree, err := ddl.Parse(s.SQL)
		if err != nil {
			o.result.Skipped = append(o.result.Skipped, fmt.Sprintf("%s: the parser does not take `%s`, so it was not run", at(s.Place), ddl.Brief(s.SQL)))
			tree = ddl.Statement{}
		}
		trees[i] = tree
		run.together = run.together || (tree.Node != nil && tree.Ephemeral())
	}
	if run.together {
		if err := exec(ctx, o.main, "BEGIN"); err != nil {
			return err
		}
	}
	for i, s := range m.Up.Statements {
		if trees[i].Node == nil {
			continue
		}
		if err := o.statement(ctx, run, s, trees[i]); err != nil {
			return err
		}
	}
	if run.together {
		if err := exec(ctx, o.main, "COMMIT"); err != nil && !isServers(err) {
			return err
		}
	}
	o.judgeUntimed(run)
	if err := exec(ctx, o.main, "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL"); err != nil {
		return err
	}
	return settle(ctx, o.main)
}

func at(p report.Place) string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

func exec(ctx context.Context, conn *pgx.Conn, sql string) error {
	_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// isServers reports a refusal by the server, after which the session continues.
func isServers(err error) bool {
	_, is := errors.AsType[*pgconn.PgError](err)
	return is
}

// code is the SQLSTATE of a refusal.
func code(err error) string {
	if refused, is := errors.AsType[*pgconn.PgError](err); is {
		return refused.Code
	}
	return ""
}

const (
	inTransaction   = "25001" // active_sql_transaction
	endsTransaction = "2D000" // invalid_transaction_termination: a procedure that commits
	lockTimeout     = "55P03" // lock_not_available
	notNull         = "23502" // not_null_violation
)

func (o *observation) statement(ctx context.Context, run *running, s project.Statement, tree ddl.Statement) error {
	run.sending.Next(s, tree)
	if setting, is := tree.Setting(); is {
		if strings.HasSuffix(setting.Name, "_timeout") {
			return nil
		}
		if tree.Node.GetVariableSetStmt() != nil && setting.Local && !run.together {
			sql, err := tree.ForSession()
			if err != nil {
				return err
			}
			return o.passing(exec(ctx, o.main, sql), s)
		}
	}
	if kind, is := tree.Control(); is {
		switch kind {
		case parser.TransactionStmtKind_TRANS_STMT_COMMIT, parser.TransactionStmtKind_TRANS_STMT_ROLLBACK:
			clear(run.held)
		}
		return nil
	}
	saw, err := o.inside(ctx, run, s, tree)
	if c := code(err); c == inTransaction || c == endsTransaction {
		saw, err = o.outside(ctx, s, tree)
	}
	if err != nil {
		if c := code(err); strings.HasPrefix(c, "23") || strings.HasPrefix(c, "22") {
			o.failsOnRows(s, tree, err)
			return nil
		}
		return o.passing(err, s)
	}
	o.result.Statements = append(o.result.Statements, report.Statement{Place: s.Place, SQL: s.SQL, Measured: saw.measured})
	o.judge(run, saw)
	if run.Up.Separate() && !run.together {
		clear(run.held) // the statement was a transaction of its own
	}
	return nil
}

// passing records a refusal of the server, and returns any other error.
func (o *observation) passing(err error, s project.Statement) error {
	if refused, is := errors.AsType[*pgconn.PgError](err); is {
		o.result.Skipped = append(o.result.Skipped, fmt.Sprintf("%s: `%s` could not be observed, as the database refuses it here: %s (SQLSTATE %s)",
			at(s.Place), ddl.Brief(s.SQL), refused.Message, refused.Code))
		return nil
	}
	return err
}

// inside runs the statement in a transaction: its own, or the migration's.
func (o *observation) inside(ctx context.Context, run *running, s project.Statement, tree ddl.Statement) (_ seen, err error) {
	saw := seen{Statement: s, tree: tree}
	begin, end, undo := "BEGIN", "COMMIT", "ROLLBACK"
	if run.together {
		begin, end, undo = "SAVEPOINT review", "RELEASE review", "ROLLBACK TO review"
	}
	if err := exec(ctx, o.main, begin); err != nil {
		return saw, err
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = errors.Join(err, exec(ctx, o.main, undo))
		}
	}()
	before, err := o.old.readState(ctx, o.main)
	if err != nil {
		return saw, err
	}
	began := time.Now()
	if err := exec(ctx, o.main, s.SQL); err != nil {
		return saw, err
	}
	saw.measured.Duration = time.Since(began)
	after, err := o.old.readState(ctx, o.main)
	if err != nil {
		return saw, err
	}
	if saw.held, err = o.old.readLocks(ctx, o.watch, o.main.PgConn().PID(), false, false); err != nil {
		return saw, err
	}
	saw.measured.WALBytes = after.wal - before.wal
	saw.did = o.old.between(before, after, tree.Truncates())
	if err := o.measure(ctx, &saw); err != nil {
		return saw, err
	}
	return saw, exec(ctx, o.main, end)
}

// measure fills in the waiting queries and the work, while the locks are held.
func (o *observation) measure(ctx context.Context, saw *seen) error {
	m := &saw.measured
	m.Locks = o.old.locks(saw.held)
	m.Rewrites, m.Scans = o.old.names(saw.did.rewrote), o.old.names(saw.did.scanned)
	for _, oid := range slices.Concat(slices.Collect(maps.Keys(saw.held)), saw.did.scanned, saw.did.rewrote) {
		if r := o.old[oid]; !r.isIndex() {
			m.Rows = max(m.Rows, r.rows)
		}
	}
	var err error
	m.Waiting, err = o.waiting(ctx, saw.held)
	return err
}
