package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Print writes the results as a table, with server versions if there are several, and the names of the contenders below.
func (r *Report) Print(w io.Writer) {
	ours := r.entrants(func(s Setup) *Entrant { return s.Ours })
	peers := r.entrants(func(s Setup) *Entrant { return s.Peer })
	floors := r.entrants(func(s Setup) *Entrant { return s.Floor })
	peer, floor := heading(peers, "river", "River", "peer"), heading(floors, "raw SQL", "raw SQL", "floor")
	servers := r.servers()

	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	header := table.Row{"", "measurement", "unit", "ours", peer, floor, "ours to " + peer, "ours to " + floor}
	if len(servers) > 1 {
		header = append(header, "server")
	}
	t.AppendHeader(header)
	var right []table.ColumnConfig
	for column := 4; column <= 8; column++ {
		right = append(right, table.ColumnConfig{Number: column, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	last := ""
	for _, result := range r.results {
		group := result.Setup.Scenario + result.Setup.Postgres
		if last != "" && last != group {
			t.AppendSeparator()
		}
		last = group
		row := table.Row{
			result.Setup.Scenario, result.Name, result.Unit,
			Format(result.Ours), Format(result.Peer), Format(result.Floor),
			ratio(result.RatioToPeer), ratio(result.RatioToFloor),
		}
		if len(servers) > 1 {
			row = append(row, version(result.Setup.Postgres))
		}
		t.AppendRow(row)
	}
	t.Render()
	fmt.Fprintf(w, "ours to %s, to %s: how many times better ours is. Above 1 ours is better: faster where more is better, sooner where less is.\n", peer, floor)
	fmt.Fprintf(w, "ours: this library, as %s.\n", strings.Join(ours, "; "))
	if len(peers) > 0 {
		fmt.Fprintf(w, "%s, the peer: the same work by %s.\n", peer, strings.Join(peers, "; "))
	}
	if len(floors) > 0 {
		fmt.Fprintf(w, "%s, the floor: %s. Raw SQL writes the same rows as ours by hand-written statements, and does nothing else.\n", floor, strings.Join(floors, "; "))
	}
	fmt.Fprintf(w, "Measured on %s, %d cores; %s.\n", r.Facts.CPU, r.Facts.Cores, strings.Join(servers, "; "))
}

// servers returns the descriptions of the servers of the results, or of the current server if there are none.
func (r *Report) servers() (servers []string) {
	for _, result := range r.results {
		if !slices.Contains(servers, result.Setup.Postgres) {
			servers = append(servers, result.Setup.Postgres)
		}
	}
	if len(servers) == 0 {
		return []string{r.Facts.Postgres}
	}
	return servers
}

// version returns the number in a server's description, such as "PostgreSQL 18.3 on x86_64".
func version(postgres string) string {
	if words := strings.Fields(postgres); len(words) > 1 {
		return words[1]
	}
	return postgres
}

// entrants returns the distinct names in one of the places.
func (r *Report) entrants(of func(Setup) *Entrant) (names []string) {
	for _, result := range r.results {
		if e := of(result.Setup); e != nil && !slices.Contains(names, e.Name) {
			names = append(names, e.Name)
		}
	}
	return names
}

// heading returns a column's heading: name if all contenders in it begin so, otherwise the default.
func heading(names []string, begin, name, otherwise string) string {
	for _, n := range names {
		if !strings.HasPrefix(n, begin) {
			return otherwise
		}
	}
	return name
}

// Format formats a figure with three digits or, from 1,000, as a whole number; nil as "".
func Format(value *float64) string {
	switch {
	case value == nil:
		return ""
	case math.Abs(*value) < 10:
		return fmt.Sprintf("%.2f", *value)
	case math.Abs(*value) < 100:
		return fmt.Sprintf("%.1f", *value)
	}
	return thousands(int64(math.Round(*value)))
}

func ratio(value *float64) string {
	if value == nil {
		return ""
	}
	return fmt.Sprintf("%.2f", *value)
}

// thousands formats n with commas between groups of three digits.
func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
