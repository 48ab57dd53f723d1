package report_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/review/report"
)

var update = flag.Bool("update", false, "write the golden files")

func sample() *report.Report {
	indexed := report.Measured{
		Locks: []report.Lock{{Relation: "orders", Mode: "ShareLock"}}, Scans: []string{"orders"},
		WALBytes: 2_400_000, Duration: 84 * time.Millisecond, Rows: 100_000,
		Waiting: []report.Waiting{{Query: "PlaceOrder", Operations: []string{"shop.Place"}}, {Query: "CancelOrder"}},
	}
	index := report.Place{File: "db/migrations/7_status.sql", Line: 4}
	return &report.Report{
		Base: "main", Head: "status", Migrations: []string{index.File}, Order: report.SchemaFirst, Declared: "usable from 6",
		Findings: []report.Finding{
			{Rule: "index-redundant", Severity: report.Advice, Place: index, Object: "orders_status", Title: "`orders_status_placed` serves what `orders_status` does", Do: "Leave it out."},
			{
				Rule: "lock-blocks-writers", Severity: report.Blocking, Place: index, Object: "orders",
				Title: "Writers of `orders` wait while the index is built", Do: "Write `CREATE INDEX CONCURRENTLY`, alone.",
				Detail: "The time grows with the table.\nIt holds until the transaction ends.", Measured: &indexed,
			},
			{Rule: "drop-cascade", Severity: report.Risk, Place: report.Place{File: index.File, Line: 9}, Title: "CASCADE removes what is not named", Silenced: "nobody has such views"},
			{Rule: "rolling-schema-first", Severity: report.Note, Place: report.Place{File: "queries/orders.sql", Line: 12}, Title: "`ListByStatus` needs the new schema"},
		},
		Catalog:    []report.Change{{Kind: "index", Object: "orders_status", After: "CREATE INDEX orders_status ON orders USING btree (status)", Place: index}},
		API:        []report.Change{{Kind: "field", Object: "Order.Status", Before: "string", After: "*string", Place: report.Place{File: "queries/orders.sql", Line: 3}}},
		Plans:      []report.Change{{Kind: "plan", Object: "ListByStatus", Before: "Seq Scan on orders", After: "Index Scan using orders_status", Details: "Limit\n  ->  Index Scan using orders_status on orders"}},
		Statements: []report.Statement{{Place: index, SQL: "CREATE INDEX orders_status\n    ON orders (status) WHERE note <> 'a|b'", Measured: indexed}},
		Skipped:    []string{"dump: no dump of the schema is committed"},
	}
}

var unread = []string{"`db/migrations/7_fill.go`: a migration in Go: the databases are made without it"}

func TestForms(t *testing.T) {
	for name, form := range map[string]func(io.Writer) error{
		"sample.md":    func(w io.Writer) error { return report.WriteMarkdown(w, sample(), report.Blocking) },
		"sample.json":  func(w io.Writer) error { return report.WriteJSON(w, sample(), report.Blocking) },
		"sample.sarif": func(w io.Writer) error { return report.WriteSARIF(w, sample()) },
		"clean.md": func(w io.Writer) error {
			return report.WriteMarkdown(w, &report.Report{Base: "main", Order: report.AnyOrder}, report.Blocking)
		},
		"unread.md": func(w io.Writer) error {
			return report.WriteMarkdown(w, &report.Report{Base: "main", NotRead: unread, Order: report.AnyOrder}, report.Blocking)
		},
		"unread.json": func(w io.Writer) error {
			return report.WriteJSON(w, &report.Report{Base: "main", NotRead: unread}, report.Blocking)
		},
		"unread.sarif": func(w io.Writer) error { return report.WriteSARIF(w, &report.Report{Base: "main", NotRead: unread}) },
		"clean.json":   func(w io.Writer) error { return report.WriteJSON(w, &report.Report{Base: "main"}, report.Blocking) },
		"clean.sarif":  func(w io.Writer) error { return report.WriteSARIF(w, &report.Report{Base: "main"}) },
	} {
		t.Run(name, func(t *testing.T) {
			var made, again bytes.Buffer
			for _, b := range []*bytes.Buffer{&made, &again} {
				if err := form(b); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(made.Bytes(), again.Bytes()) {
				t.Error("two runs differ")
			}
			path := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(path, made.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(made.Bytes(), want) {
				t.Errorf("%s is another one (go test -update writes it):\n%s", path, made.String())
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	of := func(list ...report.Finding) *report.Report { return &report.Report{Findings: list} }
	for _, c := range []struct {
		name   string
		report *report.Report
		failOn report.Severity
		want   report.Verdict
	}{
		{"nothing", of(), report.Blocking, report.Clean},
		{"a note", of(report.Finding{Severity: report.Note}), report.Note, report.Clean},
		{"advice", of(report.Finding{Severity: report.Advice}), report.Blocking, report.Advisory},
		{"a risk", of(report.Finding{Severity: report.Risk}), report.Blocking, report.Advisory},
		{"a risk where risks fail", of(report.Finding{Severity: report.Risk}), report.Risk, report.Blocked},
		{"blocking", of(report.Finding{Severity: report.Blocking}), report.Blocking, report.Blocked},
		{"advice, and an unread file", &report.Report{NotRead: []string{"x"}, Findings: []report.Finding{{Severity: report.Advice}}}, report.Blocking, report.Incomplete},
		{"blocking, and an unread file", &report.Report{NotRead: []string{"x"}, Findings: []report.Finding{{Severity: report.Blocking}}}, report.Blocking, report.Blocked},
		{"accepted", of(report.Finding{Severity: report.Blocking, Silenced: "empty"}), report.Blocking, report.Clean},
	} {
		if got := c.report.Verdict(c.failOn); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	if _, err := report.ParseSeverity("fatal"); err == nil {
		t.Error("a severity that does not exist was read")
	}
}

func TestWriteMarkdownFitsIntoAComment(t *testing.T) {
	r := sample()
	for range 400 {
		r.Findings = append(r.Findings, r.Findings[1])
		r.Plans = append(r.Plans, report.Change{Kind: "plan", Object: "Q", Before: "a", After: "b", Details: strings.Repeat("x\n", 200)})
	}
	var b strings.Builder
	if err := report.WriteMarkdown(&b, r, report.Blocking); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 65_000 || !strings.Contains(b.String(), "too long for a comment") || !strings.Contains(b.String(), "And 2") {
		t.Errorf("%d bytes", b.Len())
	}
}
