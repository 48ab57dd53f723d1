package locks

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Path is the page of locks, below the root.
const Path = "docs/internals/locks.md"

// The tables stand between these lines of the page.
const (
	begin = "<!-- make generate writes this from the headers of queries/ -->\n"
	end   = "<!-- end of the generated part -->\n"
)

// conversion uses statements alone on its database, so their locks are in no table.
const conversion = "schema.Adopt"

// Level is one level of the order of locks, and the tables whose rows belong to it.
type Level struct {
	Name   string
	Tables []string
}

var (
	levelLine = regexp.MustCompile(`(?m)^(?:\| (L\d) \||- \*\*(\w+)\*\*:).*$`)
	tableName = regexp.MustCompile("`(ffx?_\\w+)`")
)

// Levels returns the levels that a page describes, in its order. A level may have several lines.
func Levels(page []byte) (levels []Level) {
	for _, line := range levelLine.FindAllSubmatch(page, -1) {
		name := string(line[1]) + string(line[2])
		at := slices.IndexFunc(levels, func(l Level) bool { return l.Name == name })
		if at < 0 {
			at = len(levels)
			levels = append(levels, Level{Name: name})
		}
		for _, table := range tableName.FindAllSubmatch(line[0], -1) {
			levels[at].Tables = append(levels[at].Tables, string(table[1]))
		}
	}
	return levels
}

// Page returns the page of locks with the tables that follow from the headers.
func Page(root string) ([]byte, error) {
	page, err := os.ReadFile(filepath.Join(root, Path))
	if err != nil {
		return nil, err
	}
	before, rest, found := bytes.Cut(page, []byte(begin))
	_, after, ended := bytes.Cut(rest, []byte(end))
	if !found || !ended {
		return nil, fmt.Errorf("%s lacks the lines between which the tables stand", Path)
	}
	headers, err := Headers(root)
	if err != nil {
		return nil, err
	}
	tables, err := tables(headers, Levels(page))
	if err != nil {
		return nil, err
	}
	return slices.Concat(before, []byte(begin), tables, []byte(end), after), nil
}

// row is a line of a table: the levels of an operation, or the statements of a level, by How.
type row map[string][]string

func (r row) add(how, name string) {
	if !slices.Contains(r[how], name) {
		r[how] = append(r[how], name)
	}
}

func tables(headers []Header, levels []Level) ([]byte, error) {
	operations, byLevel := make(map[string]row), make(map[string]row)
	for _, l := range levels {
		byLevel[l.Name] = make(row)
	}
	for _, h := range headers {
		for _, lock := range h.Locks {
			if byLevel[lock.Level] == nil {
				return nil, fmt.Errorf("%s locks %s, which is no level of %s", h.Name, lock.Level, Path)
			}
			if lock.How != Waits && lock.How != Skips {
				continue
			}
			for _, user := range h.Users {
				if user == conversion {
					continue
				}
				operation := qualified(user)
				if operations[operation] == nil {
					operations[operation] = make(row)
				}
				operations[operation].add(lock.How, lock.Level)
				byLevel[lock.Level].add(lock.How, h.Name)
			}
		}
	}
	order := func(a, b string) int {
		at := func(name string) int { return slices.IndexFunc(levels, func(l Level) bool { return l.Name == name }) }
		return cmp.Compare(at(a), at(b))
	}
	var out bytes.Buffer
	out.WriteString("\n| Operation | Skips | Waits for |\n| --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		r := operations[name]
		slices.SortFunc(r[Skips], order)
		slices.SortFunc(r[Waits], order)
		fmt.Fprintf(&out, "| `%s` |%s|%s|\n", name, cell(strings.Join(r[Skips], ", ")), cell(strings.Join(r[Waits], ", ")))
	}
	out.WriteString("\n| Level | Statements that skip locked rows | Statements that wait |\n| --- | --- | --- |\n")
	for _, l := range levels {
		r := byLevel[l.Name]
		slices.Sort(r[Skips])
		slices.Sort(r[Waits])
		if len(r) > 0 {
			fmt.Fprintf(&out, "| %s |%s|%s|\n", l.Name, cell(code(r[Skips])), cell(code(r[Waits])))
		}
	}
	out.WriteString("\n")
	return out.Bytes(), nil
}

// qualified returns the name of an operation in documents: a method with its type, a function with its package.
func qualified(user string) string {
	room, name, _ := strings.Cut(user, ".")
	switch {
	case room == "engine" && strings.Contains(name, "."): // Claimer.Claim
		return name
	case room == "engine":
		return "Engine." + name
	case room == "upkeep":
		return "Upkeep." + name
	}
	return user
}

// code sets names in backticks.
func code(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// cell surrounds the text of a cell by spaces. An empty cell is one space.
func cell(text string) string {
	if text == "" {
		return " "
	}
	return " " + text + " "
}
