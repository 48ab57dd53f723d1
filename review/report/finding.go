// Package report has the result of a review: findings, the resulting verdict, and the forms for people and programs.
//
// The output depends only on the [Report]: the same change gives the same bytes, except for measurements, which are
// apart in [Measured].
package report

import (
	"cmp"
	"time"
)

// Severity says how serious a finding is.
type Severity int

// From harmless to not to be merged.
const (
	// Note describes the change; there is nothing to do.
	Note Severity = iota
	// Advice is better followed, but the change may be merged without.
	Advice
	// Risk harms some databases or some deployments: a person must decide, and write the decision down.
	Risk
	// Blocking breaks programs, loses rows or stops writers on a database of any size.
	Blocking
)

var severityNames = [...]string{"note", "advice", "risk", "blocking"}

func (s Severity) String() string { return severityNames[s] }

// Place is a line of a file of the project, from 1; Line 0 is the file as a whole. File is relative to the project's root.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
}

// Compare orders places by file, then line.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line))
}

// Finding is one fact for a reviewer.
type Finding struct {
	// Rule names the check, in words joined by hyphens: "lock-blocks-writers". It is part of the output's format.
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Place    Place    `json:"place"`
	// Object is the table, column, query, function or Go name concerned.
	Object string `json:"object,omitempty"`
	// Title is one line without a full stop. Detail explains it with the facts; Do is the advice. Both are Markdown.
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"`
	Do     string `json:"do,omitempty"`
	// Measured is the effect of a statement of a migration, if one was run.
	Measured *Measured `json:"measured,omitempty"`
	// Silenced is the reason in an unexpired comment accepting the finding. Empty: there is none.
	Silenced string `json:"silenced,omitempty"`
}

// Measured is the observed effect of one statement on the seeded database.
type Measured struct {
	// Locks are the strongest modes held on each older object, as in pg_locks.
	Locks []Lock `json:"locks,omitempty"`
	// Rewrites are the tables with replaced files, Scans the tables read in full.
	Rewrites []string `json:"rewrites,omitempty"`
	Scans    []string `json:"scans,omitempty"`
	WALBytes int64    `json:"wal_bytes"`
	// Duration and Rows, the seeded size of the largest table concerned, differ from run to run and machine to machine.
	Duration time.Duration `json:"duration_ns"`
	Rows     int64         `json:"rows"`
	// Waiting are the queries blocked by the locks.
	Waiting []Waiting `json:"waiting,omitempty"`
}

// Lock is a mode held on a relation.
type Lock struct {
	Relation string `json:"relation"`
	Mode     string `json:"mode"` // "AccessExclusiveLock"
}

// Waiting is a query that would wait, with the operations in its header.
type Waiting struct {
	Query      string   `json:"query"`
	Operations []string `json:"operations,omitempty"`
}

// Order is the order in which a change can be deployed while old and new programs run side by side.
type Order string

// The orders. The first two are safe in this order only.
const (
	AnyOrder    Order = "any order"
	SchemaFirst Order = "schema first"
	CodeFirst   Order = "code first"
	NoOrder     Order = "neither"
)

// Report is the result of a review.
type Report struct {
	// Base and Head are the revisions compared, under the caller's names.
	Base string `json:"base"`
	Head string `json:"head"`
	// Dir is the path of the project's folder in its git repository. Empty: the repository is the project. All other
	// paths are relative to the folder, except in SARIF.
	Dir string `json:"dir,omitempty"`
	// Migrations are the files of the new ones, in order.
	Migrations []string `json:"migrations"`
	// Elsewhere is a file of the project, not necessarily changed. Without a migration, SARIF puts findings without a
	// place there.
	Elsewhere string `json:"-"`
	Order     Order  `json:"deploy_order"`
	// Declared is the compatibility declared by the migrations, if any.
	Declared string    `json:"declared_compatibility,omitempty"`
	Findings []Finding `json:"findings"`
	// Catalog are the differences between the two schemas, API between the two generated packages, Plans between the
	// queries' plans: each one line, in stable order.
	Catalog []Change `json:"catalog"`
	API     []Change `json:"api"`
	Plans   []Change `json:"plans"`
	// Statements are the statements of the new migrations with their measurements, in order.
	Statements []Statement `json:"statements"`
	// NotRead are the unread files and parts of the project related to the change, each with the reason.
	NotRead []string `json:"not_read"`
	// NotSeeded are the tables without rows, each with the reason: effects on these tables are not seen.
	NotSeeded []string `json:"not_seeded,omitempty"`
	// Skipped says which parts could not run, and why.
	Skipped []string `json:"skipped,omitempty"`
}

// Change is a difference. Before is empty for an added object, After for a removed one.
type Change struct {
	Kind   string `json:"kind"` // "column", "index", "function", "plan"
	Object string `json:"object"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	Place  Place  `json:"place"`
	// Details is shown folded: a whole plan, a definition.
	Details string `json:"details,omitempty"`
}

// Statement is an executed statement of a migration.
type Statement struct {
	Place    Place    `json:"place"`
	SQL      string   `json:"sql"`
	Measured Measured `json:"measured"`
}
