package project

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	scanner "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/pgquery"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

var (
	queryName = regexp.MustCompile(`^(?:--|/\*|#)\s*name:\s*(\w+)\s+:(\w+)`)
	usedBy    = regexp.MustCompile(`(?s)Used by:\s*(.*?)\.(?:\s|$)`)
	word      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]*$`)
)

// readQueries reads the queries of all packages from their files, and takes the statements from the committed generated
// package.
func (s *Side) readQueries() error {
	var all []Query
	for _, p := range s.Packages {
		s.Queries = nil
		if err := s.readPackage(p); err != nil {
			return err
		}
		for i := range s.Queries {
			s.Queries[i].Package = p.id()
		}
		all = append(all, s.Queries...)
	}
	s.Queries = all
	return s.unreadQueries()
}

func (s *Side) readPackage(p *SQLC) error {
	for _, name := range p.Queries {
		files, err := s.sqlFiles(name)
		if err != nil {
			s.broken(report.Place{File: p.Config}, "A path of sqlc's configuration cannot be read", "`"+name+"`: "+err.Error())
			continue
		}
		if len(files) == 0 {
			s.unread(name, "sqlc's configuration "+p.Config+" names it for queries, but there is no such file")
		}
		for _, file := range files {
			if err := s.readQueryFile(file); err != nil {
				return err
			}
		}
	}
	if p.Out == "" {
		return nil
	}
	return s.takeGenerated(p.Out)
}

func (s *Side) readQueryFile(file string) error {
	raw, err := os.ReadFile(filepath.Join(s.Dir, file))
	if err != nil {
		return err
	}
	text := string(raw)
	scanned, err := pgquery.Scan(text)
	if err != nil {
		s.Findings = append(s.Findings, report.Finding{
			Rule: rule.QueryUnreadable.Name, Severity: report.Blocking, Place: report.Place{File: file},
			Title: "The parser cannot read the file of queries", Detail: err.Error(),
		})
		return nil
	}
	lines := newLineIndex(text)
	var (
		current *Query
		header  []string
		body    []*scanner.ScanToken
	)
	finish := func() {
		if current == nil {
			return
		}
		current.SQL = numbered(text, body)
		current.Operations = operations(strings.Join(header, "\n"))
		if current.SQL != "" {
			s.Queries = append(s.Queries, *current)
		}
	}
	for _, token := range scanned.Tokens {
		raw := text[token.Start:token.End]
		if isComment(token) {
			if found := queryName.FindStringSubmatch(raw); found != nil {
				finish()
				place := report.Place{File: file, Line: 1 + lines.of(int(token.Start))}
				current, header, body = &Query{Name: found[1], Command: found[2], Place: place}, nil, nil
				continue
			}
			if current != nil {
				for _, silence := range readSilence(raw, 1+lines.of(int(token.Start))) {
					silence.Place.File = file
					current.Silence = append(current.Silence, silence)
				}
			}
			if len(body) == 0 {
				header = append(header, strings.TrimSpace(strings.TrimPrefix(raw, "--")))
			}
			continue
		}
		// Text below a query without a name of its own is not a query: some projects keep the schema beside the
		// queries.
		if len(body) == 0 || text[body[len(body)-1].Start:body[len(body)-1].End] != ";" {
			body = append(body, token)
		}
	}
	finish()
	return nil
}

// operations reads "Used by: engine.Claim, engine.Renew." of a header.
func operations(header string) []string {
	found := usedBy.FindStringSubmatch(header)
	if found == nil {
		return nil
	}
	var names []string
	for name := range strings.SplitSeq(found[1], ",") {
		names = append(names, strings.Join(strings.Fields(name), " "))
	}
	return names
}

// numbered returns the statement with $n for sqlc's parameters: @name, sqlc.arg(name), sqlc.narg(name), sqlc.slice(name).
// Parameters of one name are one, in the order of the names. As in sqlc, they take the numbers the statement itself
// does not use.
func numbered(text string, tokens []*scanner.ScanToken) string {
	for len(tokens) > 0 && text[tokens[len(tokens)-1].Start:tokens[len(tokens)-1].End] == ";" {
		tokens = tokens[:len(tokens)-1]
	}
	if len(tokens) == 0 {
		return ""
	}
	var (
		numbers = map[string]int{}
		used    = map[int]bool{}
		next    = 1
		out     strings.Builder
		from    = tokens[0].Start
	)
	for _, token := range tokens {
		if number, isNumber := strings.CutPrefix(text[token.Start:token.End], "$"); isNumber && token.Token == scanner.Token_PARAM {
			n, _ := strconv.Atoi(number)
			used[n] = true
		}
	}
	at := func(i int) string {
		if i >= len(tokens) {
			return ""
		}
		return text[tokens[i].Start:tokens[i].End]
	}
	replace := func(first, last int, by string) {
		out.WriteString(text[from:tokens[first].Start])
		out.WriteString(by)
		from = tokens[last].End
	}
	parameter := func(name string) string {
		name = strings.Trim(name, `'"`)
		if numbers[name] == 0 {
			for used[next] {
				next++
			}
			numbers[name] = next
			used[next] = true
		}
		return "$" + strconv.Itoa(numbers[name])
	}
	for i := 0; i < len(tokens); i++ {
		switch {
		case at(i) == "@" && word.MatchString(at(i+1)) && tokens[i].End == tokens[i+1].Start:
			replace(i, i+1, parameter(at(i+1)))
			i++
		case strings.EqualFold(at(i), "sqlc") && at(i+1) == "." && at(i+3) == "(" && at(i+5) == ")":
			switch strings.ToLower(at(i + 2)) {
			case "arg", "narg", "slice":
				replace(i, i+5, parameter(at(i+4)))
			case "embed":
				replace(i, i+5, at(i+4)+".*")
			default:
				continue
			}
			i += 5
		}
	}
	out.WriteString(text[from:tokens[len(tokens)-1].End])
	return out.String()
}

// takeConstant records the statement of a constant beginning with "-- name: Name :command".
func takeConstant(sent map[string]string, value ast.Expr) {
	text, ok := constant(value)
	if !ok {
		return
	}
	first, rest, _ := strings.Cut(text, "\n")
	if found := queryName.FindStringSubmatch(first); found != nil {
		sent[found[1]] = strings.TrimRight(rest, "; \t\n")
	}
}

// constant evaluates a literal, or sqlc's sum for a text with backquotes.
func constant(value ast.Expr) (string, bool) {
	switch value := value.(type) {
	case *ast.BasicLit:
		if value.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(value.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, leftOK := constant(value.X)
		right, rightOK := constant(value.Y)
		return left + right, leftOK && rightOK && value.Op == token.ADD
	}
	return "", false
}
