// Package project reads a project at one revision: its migrations, its generator's configuration, its queries and its
// dump. It uses no database, and changes nothing in the project's folder.
package project

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// Side is the project at one revision, in a folder of its own.
type Side struct {
	// Revision is the name the caller gave. Empty: the present files of the working folder, committed or not.
	Revision string
	// Dir is the project's root: a copy without other writers.
	Dir string
	// MigrationsDir is the folder of the migrations, relative to Dir. Empty: there is none.
	MigrationsDir string
	// Tool applies the migrations. Empty: there are none.
	Tool Tool
	// MigrationsTable is the table in which the tool records the migrations of a database.
	MigrationsTable string
	// Migrations are in the order in which they are applied.
	Migrations []Migration
	// SQLC is the first of Packages. Nil: there is none.
	SQLC *SQLC
	// Packages are those that sqlc generates from a PostgreSQL schema.
	Packages []*SQLC
	Queries  []Query
	// Dump is the path of the committed dump of the schema. Empty: there is none.
	Dump string
	// DumpText is the dump without the statements a review does not run. Empty: as in the file.
	DumpText string
	// Findings are about files the parser or the migration tool cannot read.
	Findings []report.Finding
	// Unread are the parts that were not read.
	Unread []Unread
	// PassedOver are the folders, and the files of the root, that may hold migrations beside the folder the caller named.
	PassedOver []string
	// Omitted are the symbolic links and submodules, by path, which Dir does not have.
	Omitted map[string]Omitted
}

// New returns the migrations of head that base does not have, by version, in order.
func New(base, head *Side) []Migration {
	known := map[string]bool{}
	for _, m := range base.Migrations {
		known[m.Key()] = true
	}
	var added []Migration
	for _, m := range head.Migrations {
		if !known[m.Key()] {
			added = append(added, m)
		}
	}
	return added
}

// Query returns the query of that name.
func (s *Side) Query(name string) (Query, bool) {
	for _, q := range s.Queries {
		if q.Name == name {
			return q, true
		}
	}
	return Query{}, false
}

// Migration is one migration: a file of the migrations folder, with the file of its way down if that is another.
type Migration struct {
	Tool    Tool
	Version string
	File    string // relative to the root
	// Text is the file's text, with the line ends of Unix.
	Text string
	// Repeatable: Flyway applies it whenever its text changes.
	Repeatable bool
	Up         Half
	Down       Half
	// Usable is the file's declaration of the versions of programs it works with ("usable-from: V"). Empty: none.
	Usable string
	// Irreversible is its reason for having no way back. Empty: it has one.
	Irreversible string
}

// Key names the migration among those a database has.
func (m Migration) Key() string {
	if !m.Repeatable {
		return m.Version
	}
	sum := sha256.Sum256([]byte(m.Text))
	return m.Version + " " + hex.EncodeToString(sum[:8])
}

// Half is the way up or down.
type Half struct {
	SQL string
	// Transaction: the tool runs the statements in a transaction.
	Transaction bool
	Statements  []Statement
	// Batches are the texts the tool sends, in order. dbmate sends SQL itself.
	Batches []Batch
}

// Statement is one statement of a migration, without the text between it and the next.
type Statement struct {
	SQL   string
	Place report.Place
	// Batch is the index of the batch it is part of.
	Batch int
	// Silence are the comments before it that accept a finding.
	Silence []Silence
}

// LastLine is the line of the file the statement ends on.
func (s Statement) LastLine() int { return s.Place.Line + strings.Count(s.SQL, "\n") }

// Silence accepts the findings of a rule at a statement, for a reason, until a day: "-- review: allow RULE until
// 2027-01-31: the table is empty everywhere". For any other text, Rule is empty and Reason is the text.
type Silence struct {
	Rule, Reason string
	Until        string // YYYY-MM-DD
	Place        report.Place
}

// SQLC is one package of sqlc.yaml.
type SQLC struct {
	Config  string   // the file, relative to the root
	Schema  []string // paths, relative to the root
	Queries []string
	Out     string // the folder of the generated package
	Package string
	// Label begins the names of the package's queries, in a project with several packages.
	Label string
}

// id identifies the package among the packages of its side.
func (p *SQLC) id() string {
	return strings.Join(append([]string{p.Config, p.Out, p.Package}, p.Queries...), " ")
}

// Query is one named statement that sqlc generates a function for.
type Query struct {
	// Name is unique: in a project with several packages it begins with the package's label, "shop.ListOrders".
	Name string
	// Package identifies the package.
	Package string
	Command string // "one", "many", "exec", "execrows", "copyfrom", …
	// SQL is the statement as the generated code sends it, with $1 for its parameters.
	SQL   string
	Place report.Place
	// Operations are those its header names ("Used by: engine.Claim, …").
	Operations []string
	// Silence are the comments below its name that accept a finding about it.
	Silence []Silence
}
