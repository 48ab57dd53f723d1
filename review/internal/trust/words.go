package trust

import (
	"slices"
	"strings"

	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/pgquery"
)

// token is a word, a sign or a text of a body.
type token struct {
	word       string // in lower case; empty for a text
	text       string // of a literal, without its quotes
	name       string // its name as an identifier; empty if it cannot be one
	start, end int
}

func tokens(sql string) ([]token, bool) {
	scanned, err := pgquery.Scan(sql)
	if err != nil {
		return nil, false
	}
	var list []token
	for _, t := range scanned.Tokens {
		raw := sql[t.Start:t.End]
		switch {
		case t.Token == parser.Token_SQL_COMMENT || t.Token == parser.Token_C_COMMENT:
		case t.Token == parser.Token_SCONST || t.Token == parser.Token_USCONST:
			list = append(list, token{text: unquoted(raw), start: int(t.Start), end: int(t.End)})
		default:
			word := strings.ToLower(strings.Trim(raw, `"`))
			found := token{word: word, start: int(t.Start), end: int(t.End)}
			switch {
			case strings.HasPrefix(raw, `"`) && len(raw) > 2:
				found.name = strings.ReplaceAll(raw[1:len(raw)-1], `""`, `"`)
			case t.Token == parser.Token_IDENT, t.KeywordKind == parser.KeywordKind_UNRESERVED_KEYWORD, t.KeywordKind == parser.KeywordKind_COL_NAME_KEYWORD:
				found.name = word
			}
			list = append(list, found)
		}
	}
	return list, true
}

func unquoted(raw string) string {
	if strings.HasPrefix(raw, "$") {
		if end := strings.Index(raw[1:], "$"); end >= 0 && len(raw) >= 2*(end+2) {
			return raw[end+2 : len(raw)-end-2]
		}
	}
	at := strings.Index(raw, "'")
	if at < 0 || len(raw) < at+2 {
		return raw
	}
	return strings.NewReplacer("''", "'", `\'`, "'", `\n`, " ", `\t`, " ").Replace(raw[at+1 : len(raw)-1])
}

// search examines the text of a body. block: the body is a DO block's, in which statements can be replaced.
func (j *judgement) search(body string, block bool) {
	list, scanned := tokens(body)
	if !scanned {
		return // the role without rights is the wall
	}
	statement := 0 // where the present one begins
	for i, t := range list {
		if t.word == "" {
			inner := judgement{}
			if strings.ContainsAny(t.text, " \t\n(") { // EXECUTE 'statement'
				inner.search(t.text, false)
			}
			if inner.refused != "" {
				j.refuse("%s", inner.refused)
			}
			if inner.notRun != "" && block {
				j.leave(inner.notRun)
			}
			for _, name := range inner.roles {
				j.names(name)
			}
			continue
		}
		if begins(t) {
			statement = i + 1
		}
		j.words(list, i, statement, block)
	}
}

func (j *judgement) words(list []token, i, statement int, block bool) {
	at := func(n int) string {
		if i+n < len(list) {
			return list[i+n].word
		}
		return ""
	}
	is := func(n int, words ...string) bool { return slices.Contains(words, at(n)) }
	literal := func(n int) bool { return i+n < len(list) && list[i+n].word == "" }
	first := i == statement
	switch {
	case reaches(at(0)) && is(1, "("):
		j.refuse("calls %s, which reaches files, other servers or the server itself", at(0))
	case first && is(0, "copy"):
		for n := 1; i+n < len(list) && !is(n, ";"); n++ {
			if is(n, "program") && literal(n+1) {
				j.refuse("runs a program on the server")
			} else if is(n, "from", "to") && literal(n+1) {
				j.refuse("accesses a file of the server")
			} else if is(n, "from") && is(n+1, "stdin") {
				j.reads()
			}
		}
	case first && (is(0, "prepare") && is(1, "transaction") || is(0, "commit", "rollback") && is(1, "prepared")):
		j.refuse("is about a prepared transaction, which outlives its session")
	case first && is(0, "load") && literal(1):
		j.refuse("loads a library into the server")
	case is(0, "alter") && is(1, "system"):
		j.refuse("changes the server's configuration")
	case is(0, "create", "alter", "drop") && is(1, "database", "tablespace", "subscription", "server") && !is(2, "(", ")", ",", "="):
		j.refuse("reaches other databases or servers")
	case changesRole(list, i):
		if first {
			j.leave("makes or changes a role")
			j.neutral = j.neutral || block
			if is(0, "create") && i+2 < len(list) {
				j.names(list[i+2].name)
			}
		}
		for n := 2; i+n < len(list) && !is(n, ";"); n++ {
			if is(n, "superuser", "createrole", "createdb", "replication", "bypassrls") || strings.HasPrefix(at(n), "pg_") {
				j.refuse("gives a role rights on the server")
			}
		}
	case first && is(0, "grant") && strings.HasPrefix(at(1), "pg_"):
		j.refuse("gives a role rights on the server")
	case first && is(0, "set") && (is(1, "role") || is(1, "local", "session") && is(2, "role") || is(1, "session") && is(2, "authorization")) && !is(2, "none", "default"):
		j.refuse("changes the role of the session")
	case is(0, "set_config") && is(1, "(") && i+2 < len(list) && slices.Contains([]string{"role", "session_authorization"}, strings.ToLower(list[i+2].text)):
		j.refuse("changes the role of the session")
	case is(0, "language") && (is(1, "c", "internal") || strings.HasSuffix(at(1), "u") && strings.HasPrefix(at(1), "pl")):
		j.refuse("has code in %s, a language that can leave the database", at(1))
	}
}

// begins reports whether a statement of a body begins after the token.
func begins(t token) bool {
	return slices.Contains([]string{";", "begin", "then", "else", "loop"}, t.word)
}

// changesRole reports whether a statement to make, change or drop a role begins at word i.
func changesRole(list []token, i int) bool {
	return i+1 < len(list) && slices.Contains([]string{"create", "alter", "drop"}, list[i].word) &&
		slices.Contains([]string{"role", "user", "group"}, list[i+1].word) && (i+2 == len(list) || list[i+2].word != "mapping")
}

// neutralize replaces the statements of a DO block that make or change a role by NULL statements, and keeps its lines.
// It returns false if the block still has such a statement afterwards, for example in a text.
func neutralize(block string) (string, bool) {
	list, scanned := tokens(block)
	if !scanned {
		return block, false
	}
	for _, t := range list {
		if t.word != "" || !strings.HasPrefix(block[t.start:], "$") {
			continue
		}
		inner, scanned := tokens(t.text)
		if !scanned {
			return block, false
		}
		body := []byte(t.text)
		for i := range inner {
			if !changesRole(inner, i) || i > 0 && !begins(inner[i-1]) {
				continue
			}
			last := i
			for last+1 < len(inner) && inner[last+1].word != ";" {
				last++
			}
			blank(body, inner[i].start, inner[last].end)
			copy(body[inner[i].start:], "NULL")
		}
		var left judgement
		left.search(string(body), true)
		from := t.start + strings.Index(block[t.start+1:], "$") + 2 // behind the opening tag
		return block[:from] + string(body) + block[from+len(body):], left.notRun == "" && left.refused == ""
	}
	return block, false
}

// blank overwrites a part of a text by spaces, and keeps its lines.
func blank(sql []byte, from, to int) {
	for i := from; i < to; i++ {
		if sql[i] != '\n' {
			sql[i] = ' '
		}
	}
}
