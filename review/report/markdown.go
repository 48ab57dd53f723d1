package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/review/internal/words"
)

// Marker is the first line of the Markdown form. Programs updating one comment look for it.
const Marker = "<!-- schema-review -->"

// longestMarkdown is the limit of comments on code hosts, with a margin. Folded parts beyond it are left out.
const longestMarkdown = 60_000

// WriteMarkdown writes the report for a reviewer: the verdict, the advice, the order of deployment, and the rest
// folded.
func WriteMarkdown(w io.Writer, r *Report, failOn Severity) error {
	var open, noted, silenced []Finding
	for _, f := range r.Findings {
		switch {
		case f.Silenced != "":
			silenced = append(silenced, f)
		case f.Severity == Note:
			noted = append(noted, f)
		default:
			open = append(open, f)
		}
	}
	slices.SortStableFunc(open, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	p := &page{}
	p.head(r, failOn, open)
	p.notRead(r.NotRead)
	p.findings(open)
	p.fold(fmt.Sprintf("What each statement did (%d)", len(r.Statements)), statements(r.Statements))
	p.fold(fmt.Sprintf("The schema (%d)", len(r.Catalog)), changes(r.Catalog))
	p.fold(fmt.Sprintf("The generated Go API (%d)", len(r.API)), changes(r.API))
	p.fold(fmt.Sprintf("Plans (%d)", len(r.Plans)), changes(r.Plans))
	p.fold(fmt.Sprintf("Good to know (%d)", len(noted)), bullets(noted, func(f Finding) string { return cmp.Or(f.Detail, f.Do) }))
	p.fold(fmt.Sprintf("Accepted by comments (%d)", len(silenced)), bullets(silenced, func(f Finding) string { return "Accepted: " + f.Silenced }))
	p.fold(fmt.Sprintf("Not looked at (%d)", len(r.Skipped)), lines(r.Skipped))
	if p.left > 0 {
		fmt.Fprintf(&p.text, "\n%s too long for a comment: the JSON form has all.\n", count(p.left, "part is", "parts are"))
	}
	_, err := io.WriteString(w, p.text.String())
	return err
}

// page is the text so far, and how many parts did not fit.
type page struct {
	text strings.Builder
	left int
}

var verdictLines = map[Verdict]string{
	Clean:    "nothing to do",
	Advisory: "may be merged, with what is said below in mind",
	Blocked:  "not to be merged as it is",

	Incomplete: "a part of the project was not read",
}

func (p *page) head(r *Report, failOn Severity, open []Finding) {
	project := ""
	if r.Dir != "" {
		project = " of " + Code(r.Dir)
	}
	fmt.Fprintf(&p.text, "%s\n## Schema review%s: %s\n\n", Marker, project, verdictLines[r.Verdict(failOn)])
	var counts []string
	for _, s := range []Severity{Blocking, Risk, Advice} {
		n := 0
		for _, f := range open {
			if f.Severity == s {
				n++
			}
		}
		if n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(counts) > 0 {
		fmt.Fprintf(&p.text, "- **Findings:** %s.\n", strings.Join(counts, ", "))
	}
	if r.Order != "" {
		fmt.Fprintf(&p.text, "- **Deploy:** %s", orderLines[r.Order])
		if r.Declared != "" {
			fmt.Fprintf(&p.text, " The migrations declare: %s.", line(r.Declared))
		}
		p.text.WriteString("\n")
	}
	migrations := "no new migration"
	if len(r.Migrations) > 0 {
		var names []string
		for _, m := range r.Migrations {
			names = append(names, Code(m))
		}
		migrations = strings.Join(first(names, 5), ", ")
	}
	fmt.Fprintf(&p.text, "- **Change:** %s to %s: %s; %s of the schema, %s of the Go API, %s of plans.\n",
		revision(r.Base, "base"), revision(r.Head, "the working folder"), migrations,
		count(len(r.Catalog), "difference", "differences"), count(len(r.API), "difference", "differences"), count(len(r.Plans), "difference", "differences"))
	p.notSeeded(r.NotSeeded)
	if len(r.Skipped) > 0 {
		fmt.Fprintf(&p.text, "- **Not looked at:** %s; see the end.\n", count(len(r.Skipped), "thing", "things"))
	}
}

// notRead lists the unread parts, above the findings.
func (p *page) notRead(all []string) {
	if len(all) == 0 {
		return
	}
	p.text.WriteString("\n### Not read\n\nThe review knows nothing about these parts of the project, so it says nothing about them:\n\n")
	shown, rest := words.Cut(all, longestNotRead)
	for _, part := range shown {
		fmt.Fprintf(&p.text, "- %s\n", indent(prose(part)))
	}
	if rest > 0 {
		fmt.Fprintf(&p.text, "- and %s\n", words.More(rest))
	}
}

// longestNotRead is how many unread parts are listed.
const longestNotRead = 20

var orderLines = map[Order]string{
	AnyOrder:    "schema and programs in any order.",
	SchemaFirst: "the schema first, then the programs.",
	CodeFirst:   "the programs first, then the schema.",
	NoOrder:     "**no order is safe**: programs of before and of after each fail on the other schema.",
}

// findings writes the findings that need action, the worst first. Of many for one rule, one is written in full.
func (p *page) findings(open []Finding) {
	if len(open) == 0 {
		return
	}
	p.text.WriteString("\n### What to do\n\n")
	shown := 0
	for i, f := range open {
		var entry strings.Builder
		fmt.Fprintf(&entry, "%d. **%s** (%s, `%s`, %s)\n", i+1, line(f.Title), f.Severity, f.Rule, place(f.Place))
		if f.Do != "" {
			fmt.Fprintf(&entry, "   %s\n", indent(prose(f.Do)))
		}
		if did := facts(f.Measured); did != "" {
			fmt.Fprintf(&entry, "   <br>Seen: %s\n", did)
		}
		if f.Detail != "" {
			fmt.Fprintf(&entry, "   <details><summary>Why</summary>\n\n   %s\n   </details>\n", indent(prose(f.Detail)))
		}
		if p.text.Len()+entry.Len() > longestMarkdown*3/4 {
			continue // shorter ones may fit
		}
		p.text.WriteString(entry.String())
		shown++
	}
	if rest := len(open) - shown; rest > 0 {
		fmt.Fprintf(&p.text, "\nAnd %s.\n", words.More(rest))
	}
}

func (p *page) fold(title, body string) {
	if body == "" {
		return
	}
	part := fmt.Sprintf("\n<details><summary>%s</summary>\n\n%s\n</details>\n", title, strings.TrimRight(body, "\n")+"\n")
	if p.text.Len()+len(part) > longestMarkdown {
		p.left++
		return
	}
	p.text.WriteString(part)
}

// facts describes the effect of a statement in one line.
func facts(m *Measured) string {
	if m == nil {
		return ""
	}
	var said []string
	for _, l := range m.Locks {
		said = append(said, strings.TrimSuffix(l.Mode, "Lock")+" on "+Code(l.Relation))
	}
	said = first(said, 4)
	if len(m.Rewrites) > 0 {
		said = append(said, "rewrites "+quoted(m.Rewrites))
	}
	if len(m.Scans) > 0 {
		said = append(said, "reads "+quoted(m.Scans)+" whole")
	}
	if m.Duration > 0 {
		said = append(said, fmt.Sprintf("%s at %s", duration(m.Duration), count(int(m.Rows), "row", "rows")))
	}
	if len(m.Waiting) > 0 {
		said = append(said, "waiting: "+waiting(m.Waiting))
	}
	return strings.Join(said, "; ")
}

func waiting(list []Waiting) string {
	var names []string
	for _, w := range list {
		name := Code(w.Query)
		if len(w.Operations) > 0 {
			name += " (" + line(strings.Join(w.Operations, ", ")) + ")"
		}
		names = append(names, name)
	}
	return strings.Join(first(names, 6), ", ")
}

func statements(list []Statement) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| statement | locks | rewrites | reads whole | WAL | time | waiting queries |\n| --- | --- | --- | --- | ---: | ---: | --- |\n")
	for _, s := range list {
		var locks []string
		for _, l := range s.Measured.Locks {
			locks = append(locks, strings.TrimSuffix(l.Mode, "Lock")+" "+Code(l.Relation))
		}
		cells := []string{
			place(s.Place) + " " + Code(brief(s.SQL)), strings.Join(first(locks, 4), ", "), quoted(s.Measured.Rewrites), quoted(s.Measured.Scans),
			bytes(s.Measured.WALBytes), duration(s.Measured.Duration), waiting(s.Measured.Waiting),
		}
		for i, cell := range cells {
			cells[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

func changes(list []Change) string {
	var b strings.Builder
	for _, c := range list {
		switch {
		case c.Before == "":
			fmt.Fprintf(&b, "- added %s %s: %s", c.Kind, Code(c.Object), Code(brief(c.After)))
		case c.After == "":
			fmt.Fprintf(&b, "- removed %s %s, which was %s", c.Kind, Code(c.Object), Code(brief(c.Before)))
		default:
			fmt.Fprintf(&b, "- %s %s: %s becomes %s", c.Kind, Code(c.Object), Code(brief(c.Before)), Code(brief(c.After)))
		}
		if c.Place.File != "" {
			fmt.Fprintf(&b, " (%s)", place(c.Place))
		}
		b.WriteString("\n")
		if c.Details != "" {
			fmt.Fprintf(&b, "  <details><summary>in full</summary>\n\n  %s\n  </details>\n", strings.ReplaceAll(block(c.Details), "\n", "\n  "))
		}
	}
	return b.String()
}

func bullets(list []Finding, more func(Finding) string) string {
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "- %s (`%s`, %s)", line(f.Title), f.Rule, place(f.Place))
		if said := more(f); said != "" {
			fmt.Fprintf(&b, ". %s", strings.ReplaceAll(prose(said), "\n", "\n  "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func lines(list []string) string {
	var b strings.Builder
	for _, said := range list {
		fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(prose(said), "\n", "\n  "))
	}
	return b.String()
}

func place(p Place) string {
	switch {
	case p.File == "":
		return "the project"
	case p.Line == 0:
		return Code(p.File)
	}
	return Code(fmt.Sprintf("%s:%d", p.File, p.Line))
}

// brief is the text on one line, cut.
func brief(text string) string {
	text = oneLine(text)
	if runes := []rune(text); len(runes) > 120 {
		return string(runes[:119]) + "…"
	}
	return text
}

func indent(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n   ")
}

func quoted(names []string) string {
	var list []string
	for _, name := range names {
		list = append(list, Code(name))
	}
	return strings.Join(first(list, 4), ", ")
}

func revision(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return Code(name)
}

// first shortens a list.
func first(list []string, n int) []string {
	shown, rest := words.Cut(list, n)
	if rest == 0 {
		return list
	}
	return append(shown, words.More(rest))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return words.Thousands(int64(n)) + " " + many
}

func duration(d time.Duration) string {
	if d < time.Millisecond {
		return "under 1 ms"
	}
	return fmt.Sprintf("%s ms", words.Thousands(d.Milliseconds()))
}

func bytes(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
