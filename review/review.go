// Package review reviews a change to the schema and the queries of a project that uses sqlc and a migration tool. It makes the
// databases before and after the change, runs the migrations on rows, and reports the effects on the database, on the
// queries and on the generated Go package.
//
// A review needs git, and a PostgreSQL server on which it may create databases; see internal/pgserver for the choice of
// the server.
package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rules"
	"github.com/flowfabric/flowfabric-go/review/internal/seed"
	"github.com/flowfabric/flowfabric-go/review/internal/trust"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Config has the parameters of a review. Only Base, or BaseDir, is required.
type Config struct {
	// Dir is the project's folder, in a git repository unless BaseDir is set. Empty: the current one.
	Dir string
	// Base is the revision that the change will be merged into, Head the last revision of the change. Head is
	// compared with the commit at which it left Base, as in a pull request. An empty Head is the working folder.
	Base, Head string
	// BaseDir is a folder in place of Base; then git is not used.
	BaseDir string
	// Seed is the file that describes the rows, relative to Dir, taken from Head's revision; or statistics of production,
	// which may have an absolute path. Empty: seed.yaml beside the folder of the migrations or in Dir. Without a file,
	// rows are made from the schema.
	Seed string
	// Rows is the number of rows of all tables together. 0: the seed file's number, or else some thousands.
	Rows int
	// MigrationsDir is the folder of the migrations, relative to Dir. Empty: the only folder with migrations.
	MigrationsDir string
	// MigrationsTable is the migration tool's table of versions. Empty: its default; dbmate's may be in .env, as
	// DBMATE_MIGRATIONS_TABLE.
	MigrationsTable string
	// Tool names the migration tool: dbmate, goose, golang-migrate, tern, flyway, atlas, or sql for a folder of SQL
	// files. Empty: the names and the contents of the files decide.
	Tool string
	// MigrateCommand is a shell command to migrate the database of DATABASE_URL. It runs in the project's folder of
	// each side, instead of a known tool. Empty: the review applies the files itself.
	MigrateCommand string
	// SQLCConfigs are sqlc's configurations, relative to Dir. Empty: each sqlc.yaml, sqlc.yml and sqlc.json of the project.
	SQLCConfigs []string
	// TrustSQL runs the project's SQL as the role of DATABASE_URL if this role may not create one without rights. Use
	// TrustSQL only for trusted changes. Without it such a role is an error.
	TrustSQL bool
	// Today decides which silencing comments have expired. Zero: today.
	Today time.Time
	// NoCache makes every database from the migrations. Otherwise databases of base stay on the server for later reviews,
	// see docs/schema-review.md.
	NoCache bool
	// Container finds or runs a PostgreSQL server in a container of the image and returns its superuser's URL. Nil: the
	// server named by DATABASE_URL, or an embedded one.
	Container func(ctx context.Context, image string) (serverURL string, err error)
	// Log receives a line before each slow step. Nil: nowhere.
	Log io.Writer
}

// Run reviews a change. It makes databases on the server and drops them before returning.
//
// The report's Skipped lists parts that could not run, with the reasons. A failed part is a finding of the rule
// review-incomplete, and the others run nevertheless. Errors: the review as a whole is impossible, for example because
// a revision does not exist, or there is no server. Errors hold no password.
func Run(ctx context.Context, config Config) (_ *report.Report, err error) {
	if config.Base == "" && config.BaseDir == "" {
		return nil, errors.New("no base is named")
	}
	if config.Dir == "" {
		config.Dir = "."
	}
	if config.Today.IsZero() {
		config.Today = time.Now()
	}
	if config.Log == nil {
		config.Log = io.Discard
	}
	config.Log = &lines{to: config.Log}
	dir, err := os.MkdirTemp("", "ff-schema-review-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	r := &review{Config: config, report: &report.Report{Base: cmp.Or(config.Base, "base"), Head: config.Head}}
	if err := r.findRevisions(ctx); err != nil {
		return nil, err
	}
	// The server starts while the files are read.
	started := r.startServer(ctx)
	opened := r.open(ctx, dir)
	if r.server, err = started(); err != nil {
		return nil, cmp.Or(opened, err)
	}
	defer func() { err = errors.Join(err, r.server.Close(ctx)) }()
	if opened != nil {
		return nil, opened
	}
	r.server.UseCache(!r.NoCache && !r.byCommand())
	if role, own := r.server.Own(); !own && !config.TrustSQL {
		return nil, fmt.Errorf("the role %s of DATABASE_URL may not create roles, so the SQL of the change would run with its rights: grant it CREATEROLE, use a superuser of a server that is only for reviews, or trust the change (--trust-sql)", role)
	}
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	return r.finish(), nil
}

// review is one run.
type review struct {
	Config
	revisions  revisions
	base, head *project.Side
	target     *project.Side                      // Base now, if head left it earlier; else nil
	written    struct{ base, head *project.Side } // with the statements not to be run
	added      []project.Migration
	spec       *seed.Spec
	seedFiles  []string // source of spec
	reading    *trust.Reading
	server     *database.Server
	report     *report.Report
}

// check runs the parts, each after the parts it depends on.
func (r *review) check(ctx context.Context) error {
	if err := r.distrust(ctx); err != nil {
		return err
	}
	generated, apiDone := r.startAPI(ctx)
	err := r.checkDatabases(ctx, generated)
	apiDone()
	return errors.Join(err, ctx.Err())
}

func (r *review) find(findings ...report.Finding) {
	r.report.Findings = append(r.report.Findings, findings...)
}

func (r *review) skip(part, format string, arguments ...any) {
	r.report.Skipped = append(r.report.Skipped, part+": "+fmt.Sprintf(format, arguments...))
}

func (r *review) say(format string, arguments ...any) { fmt.Fprintf(r.Log, format+"\n", arguments...) }

// finish silences the findings accepted by comments, and sorts everything.
func (r *review) finish() *report.Report {
	findings := rules.Silence(r.report.Findings, r.written.base, r.written.head, r.Today)
	slices.SortStableFunc(findings, func(a, b report.Finding) int {
		return cmp.Or(incompleteFirst(a, b), cmp.Compare(b.Severity, a.Severity), a.Place.Compare(b.Place),
			strings.Compare(a.Rule, b.Rule), strings.Compare(a.Object, b.Object), strings.Compare(a.Title, b.Title))
	})
	r.report.Findings = findings
	r.report.Elsewhere = r.elsewhere()
	slices.Sort(r.report.Skipped)
	r.report.Skipped = slices.Compact(r.report.Skipped)
	return r.report
}

// elsewhere returns a file that describes the project: a configuration of sqlc, or else the seed file.
func (r *review) elsewhere() string {
	if r.head != nil && len(r.head.Packages) > 0 {
		return r.head.Packages[0].Config
	}
	for _, name := range r.seedFiles {
		if relative, err := filepath.Rel(r.head.Dir, name); err == nil && filepath.IsLocal(relative) {
			return filepath.ToSlash(relative)
		}
	}
	return ""
}
