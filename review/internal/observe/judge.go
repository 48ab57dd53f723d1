package observe

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/internal/rules"
	"github.com/flowfabric/flowfabric-go/review/internal/words"
	"github.com/flowfabric/flowfabric-go/review/report"
)

func (o *observation) small(oid uint32) bool {
	r := o.old[oid]
	if r.isIndex() {
		r = o.old[r.table]
	}
	return o.Small != nil && o.Small(r.name)
}

// slow returns the relations whose work grows with rows: reading, copying or changing rows.
func (o *observation) slow(d did) (worked, changed []uint32) {
	worked = slices.DeleteFunc(slices.Concat(d.rewrote, d.scanned), o.small)
	changed = slices.DeleteFunc(slices.Clone(d.changed), o.small)
	return worked, changed
}

// stopping returns the relations whose lock stops programs, strongest first, then by name. Programs never write to a
// materialized view, and an index counts as its table.
func (o *observation) stopping(h held) []uint32 {
	oids := slices.DeleteFunc(slices.Collect(maps.Keys(h)), func(oid uint32) bool {
		r, m := o.old[oid], h[oid]
		return m < share || (r.kind == 'm' && m < accessExclusive) || (r.isIndex() && (m < accessExclusive || h[r.table] >= m))
	})
	slices.SortFunc(oids, func(a, b uint32) int {
		if h[a] != h[b] {
			return int(h[b] - h[a])
		}
		return strings.Compare(o.old[a].name, o.old[b].name)
	})
	return oids
}

// table returns the name of a relation, or of the table of an index.
func (o *observation) table(oid uint32) string {
	if r := o.old[oid]; r.isIndex() {
		return o.old[r.table].name
	}
	return o.old[oid].name
}

// judge derives findings from a statement's effects, and adds the locks to the transaction's.
func (o *observation) judge(run *running, saw seen) {
	stopping := o.stopping(saw.held)
	worked, changed := o.slow(saw.did)
	before := held{}
	if !saw.outside {
		before = maps.Clone(run.held)
		for oid, m := range saw.held {
			if m >= share && run.held[oid] < m {
				run.by[oid] = saw.Place
			}
		}
		run.held.add(saw.held)
	}
	slow := len(worked) > 0 || len(changed) > 0
	switch {
	case len(stopping) > 0 && slow:
		o.find(o.stops(saw, stopping, saw.held, slices.Concat(worked, changed)))
		if earlier := o.stopping(before); len(earlier) > 0 && before[earlier[0]] > saw.held[stopping[0]] {
			o.keeps(run, saw, earlier, before, slices.Concat(worked, changed))
		}
		return
	case len(stopping) > 0 && !run.sending.Timeout() && !saw.outside:
		run.untimed = append(run.untimed, saw)
	}
	if len(changed) > 0 {
		o.find(o.writes(saw, changed))
	}
	if earlier := o.stopping(before); slow && len(earlier) > 0 {
		o.keeps(run, saw, earlier, before, slices.Concat(worked, changed))
	}
}

func (o *observation) find(f report.Finding) { o.result.Findings = append(o.result.Findings, f) }

// stops is the finding for a statement with a lock during its work.
func (o *observation) stops(saw seen, stopping []uint32, h held, worked []uint32) report.Finding {
	first := stopping[0]
	name, who := rule.LockBlocksWriters.Name, "writers"
	if h[first] == accessExclusive {
		name, who = rule.LockBlocksReaders.Name, "readers and writers"
	}
	return report.Finding{
		Rule: name, Severity: report.Blocking, Place: saw.Place, Object: o.table(first),
		Title:    fmt.Sprintf("The %s of `%s` wait while the statement %s", who, o.table(first), o.work(saw.did, worked)),
		Detail:   fmt.Sprintf("It holds %s for a time that grows with the rows. %s", o.lockWords(stopping, h), waitWords(saw.measured.Waiting)),
		Do:       advice(saw.tree, o.tool()),
		Measured: &saw.measured,
	}
}

// keeps adds a finding for work under the lock of an earlier statement of the transaction, once for the first such
// work.
func (o *observation) keeps(run *running, saw seen, earlier []uint32, h held, worked []uint32) {
	first := earlier[0]
	if run.kept[first] >= h[first] {
		return
	}
	run.kept[first] = h[first]
	who := "writers"
	if h[first] == accessExclusive {
		who = "readers and writers"
	}
	o.find(report.Finding{
		Rule: rule.LockHeldWhileSlow.Name, Severity: report.Blocking, Place: saw.Place, Object: o.table(first),
		Title: fmt.Sprintf("The %s of `%s` wait while a later statement %s", who, o.table(first), o.work(saw.did, worked)),
		Detail: fmt.Sprintf("The transaction still holds %s, taken in line %d, and the work takes a time that grows with the rows.",
			o.lockWords(earlier, h), run.by[first].Line),
		Do:       "Put the statements that work on rows into later migrations of their own.",
		Measured: &saw.measured,
	})
}

// writes is the finding for changes of most rows of tables.
func (o *observation) writes(saw seen, changed []uint32) report.Finding {
	names := o.old.names(changed)
	return report.Finding{
		Rule: rule.WritesEveryRow.Name, Severity: report.Blocking, Place: saw.Place, Object: names[0],
		Title:    fmt.Sprintf("Most rows of %s are changed by one transaction", quoted(names)),
		Detail:   "Programs that write to one of them wait until it commits, and the table grows by a copy of each.",
		Do:       "Change them in small batches, each in a transaction of its own: from a program, or by a procedure that commits, called " + o.tool().Alone() + ".",
		Measured: &saw.measured,
	}
}

// judgeUntimed adds one finding for a migration with short locks others wait for without a limit.
func (o *observation) judgeUntimed(run *running) {
	if len(run.untimed) == 0 {
		return
	}
	severity, h := report.Advice, held{}
	worst := run.untimed[0]
	for _, saw := range run.untimed {
		h.add(saw.held)
		strongest := saw.held[o.stopping(saw.held)[0]]
		if severity < report.Risk && strongest == accessExclusive && len(saw.measured.Waiting) > 0 {
			severity, worst = report.Risk, saw
		}
	}
	stopping := o.stopping(h)
	first := o.stopping(worst.held)[0]
	detail := fmt.Sprintf("The migration takes %s and sets no `lock_timeout`. It waits for one long %s, and later queries wait behind it. %s",
		o.lockWords(stopping, h), blocker(h[first]), waitWords(worst.measured.Waiting))
	do := rules.AdviseOn(worst.tree, o.tool())
	if !strings.Contains(do, o.tool().Alone()) { // a setting beside the statement would contradict the advice
		do = strings.TrimSpace(do + " " + rules.TimeoutAdvice(o.tool(), run.Up))
	}
	o.find(report.Finding{
		Rule: rule.LockWithoutTimeout.Name, Severity: severity, Place: worst.Place, Object: o.table(first),
		Title:    fmt.Sprintf("A short lock on `%s` is waited for without end", o.table(first)),
		Detail:   strings.TrimSpace(detail),
		Do:       do,
		Measured: &worst.measured,
	})
}

func blocker(m mode) string {
	if m == accessExclusive {
		return "query or open transaction"
	}
	return "transaction that writes"
}

func (o *observation) failsOnRows(s project.Statement, tree ddl.Statement, err error) {
	object := ""
	if names := tree.Names(); len(names) > 0 {
		object = names[0]
	}
	severity, do := report.Risk, "Make the rows fit in an earlier migration, or correct their description in the seed file."
	if code(err) == notNull && slices.ContainsFunc(tree.Actions(), func(a ddl.Action) bool { return a.Kind == ddl.AddColumn }) {
		severity = report.Blocking // no row has the new column
		do = "Add the column without NOT NULL, or with a constant default. Without one: let programs write it, fill the old rows in small batches, and make it NOT NULL in a later migration, by a validated check."
	}
	o.find(report.Finding{
		Rule: rule.FailsOnRows.Name, Severity: severity, Place: s.Place, Object: object,
		Title:  "The rows of the seed refuse the statement",
		Detail: refusal(err) + " Rows that base's schema allows, and that programs may have written.",
		Do:     do,
	})
}

// refusal returns the server's message, without values of rows: messages of class 22 hold some, and so do details.
func refusal(err error) string {
	refused, is := errors.AsType[*pgconn.PgError](err)
	if !is || strings.HasPrefix(refused.Code, "22") {
		return fmt.Sprintf("A value does not fit (SQLSTATE %s).", code(err))
	}
	return fmt.Sprintf("The database says: %s (SQLSTATE %s).", refused.Message, refused.Code)
}

// work describes a statement's effects on the relevant relations.
func (o *observation) work(d did, worked []uint32) string {
	pick := func(from []uint32) []string {
		return o.old.names(slices.DeleteFunc(slices.Clone(from), func(oid uint32) bool { return !slices.Contains(worked, oid) }))
	}
	if names := pick(d.rewrote); len(names) > 0 {
		return "rewrites " + quoted(names)
	}
	if names := pick(d.changed); len(names) > 0 {
		return "changes the rows of " + quoted(names)
	}
	return "reads " + quoted(pick(d.scanned)) + " whole"
}

func (o *observation) lockWords(oids []uint32, h held) string {
	var parts []string
	for _, oid := range oids {
		parts = append(parts, fmt.Sprintf("%s on `%s`", h[oid].words(), o.old[oid].name))
	}
	return shortened(parts, 4)
}

func waitWords(waiting []report.Waiting) string {
	switch len(waiting) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("The query `%s` waits.", waiting[0].Query)
	}
	var names []string
	for _, w := range waiting {
		names = append(names, "`"+w.Query+"`")
	}
	return fmt.Sprintf("%d queries wait: %s.", len(names), shortened(names, 4))
}

func quoted(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, report.Code(name))
	}
	return shortened(all, 4)
}

// shortened joins the first of a list and counts the others.
func shortened(parts []string, most int) string {
	if shown, rest := words.Cut(parts, most); rest > 0 {
		return strings.Join(shown, ", ") + " and " + words.More(rest)
	}
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

// advice returns the advice of the rules for the statement's kind.
func advice(tree ddl.Statement, tool project.Tool) string {
	if do := rules.AdviseOn(tree, tool); do != "" {
		return do
	}
	for _, a := range tree.Actions() {
		if a.Kind == ddl.Validate {
			continue // alone, the lock stops no program
		}
		if do := rules.Advise(a, tool); do != "" {
			return do
		}
	}
	return "Do the work that grows with the rows in a statement that holds no such lock, or while no program uses the table."
}

// tool is the project's migration tool.
func (o *observation) tool() project.Tool {
	if len(o.Migrations) == 0 {
		return ""
	}
	return o.Migrations[0].Tool
}

// Replace removes the guesses of internal/rules from the findings if the statement was observed: the observations are
// better.
func Replace(guessed []report.Finding, seen *Result) []report.Finding {
	observed := map[report.Place]bool{}
	for _, s := range seen.Statements {
		observed[s.Place] = true
	}
	return slices.DeleteFunc(slices.Clone(guessed), func(f report.Finding) bool {
		return slices.Contains(rules.Guesses, f.Rule) && observed[f.Place]
	})
}
