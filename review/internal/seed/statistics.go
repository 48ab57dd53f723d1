package seed

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pganalyze "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/pgquery"
	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
)

// Statistics are facts about the tables of another database, usually production's: sizes and distributions, without
// any value of a column.
type Statistics struct {
	tables map[relation]*tableStatistics
	// Bounded are the tables for which the statistics give more rows than a table can have, a line each. The most one can
	// have is taken instead.
	Bounded []string
}

type relation struct{ schema, table string }

type tableStatistics struct {
	rows    float64 // below 0: not known
	columns map[string]*columnStatistics
}

// columnStatistics are named as in pg_stats.
type columnStatistics struct {
	NullFrac  float64   `json:"null_frac"`
	NDistinct float64   `json:"n_distinct"`
	AvgWidth  float64   `json:"avg_width"`
	Frequent  []float64 `json:"most_common_freqs"`
}

const (
	mostStatistics  = 32 << 20 // bytes of a file
	mostFrequencies = 100
	mostRows        = 1e12 // of a table: 2^32 pages with the shortest rows
)

// exported is the form of the query in docs/schema-review.md.
type exported struct {
	Version int `json:"schema_review_statistics"`
	Tables  []struct {
		Schema  string   `json:"schema"`
		Table   string   `json:"table"`
		Rows    *float64 `json:"rows"`
		Columns []struct {
			Column string `json:"column"`
			columnStatistics
		} `json:"columns"`
	} `json:"tables"`
}

// readStatistics reads a text of either kind of statistics, and returns nil for another text. Errors quote nothing of
// the text, which may hold values.
func readStatistics(text string) (*Statistics, error) {
	trimmed := strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(trimmed, "{") && strings.Contains(trimmed, `"schema_review_statistics"`):
		return readExported(trimmed)
	case strings.Contains(trimmed, "pg_restore_relation_stats") || strings.Contains(trimmed, "pg_restore_attribute_stats"):
		return readDump(trimmed)
	}
	return nil, nil
}

func readExported(text string) (*Statistics, error) {
	var document exported
	err := json.Unmarshal([]byte(text), &document)
	if err != nil && strings.Contains(text, `\\`) { // COPY doubles backslashes
		document = exported{}
		err = json.Unmarshal([]byte(strings.ReplaceAll(text, `\\`, `\`)), &document)
	}
	if err != nil {
		if syntaxError, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("the statistics are no valid JSON, at byte %d", syntaxError.Offset)
		}
		return nil, errors.New("the statistics are not of the form of the export's query")
	}
	if document.Version != 1 {
		return nil, fmt.Errorf("the statistics are of version %d, and version 1 is known", document.Version)
	}
	s := &Statistics{tables: make(map[relation]*tableStatistics)}
	for _, t := range document.Tables {
		if t.Table == "" || t.Schema == "" {
			return nil, errors.New("the statistics have a table without a name or schema")
		}
		of := s.of(relation{t.Schema, t.Table})
		if t.Rows != nil {
			of.rows = *t.Rows
		}
		for _, c := range t.Columns {
			of.columns[c.Column] = &c.columnStatistics
		}
	}
	return s, s.check()
}

func (s *Statistics) of(name relation) *tableStatistics {
	if s.tables[name] == nil {
		s.tables[name] = &tableStatistics{rows: -1, columns: make(map[string]*columnStatistics)}
	}
	return s.tables[name]
}

// restriction is a line of pg_dump for psql.
var restriction = regexp.MustCompile(`(?m)^\\(un)?restrict [A-Za-z0-9]+\r?$`)

// readDump reads the calls of pg_restore_relation_stats and pg_restore_attribute_stats, without running anything. Other
// statements are ignored.
func readDump(text string) (*Statistics, error) {
	statements, err := split(restriction.ReplaceAllString(text, ""))
	if err != nil {
		return nil, err
	}
	s := &Statistics{tables: make(map[relation]*tableStatistics)}
	for i, statement := range statements {
		if !strings.Contains(statement, "pg_restore_") {
			continue
		}
		tree, err := syntax.Parse(statement)
		if err != nil {
			return nil, fmt.Errorf("statement %d of the dump of statistics cannot be parsed", i+1)
		}
		var failed error
		syntax.Walk(tree, func(kind string, object map[string]any) {
			if kind != "FuncCall" || failed != nil {
				return
			}
			switch syntax.Last(object["funcname"]) {
			case "pg_restore_relation_stats":
				failed = s.relation(object)
			case "pg_restore_attribute_stats":
				failed = s.attribute(object)
			}
		})
		if failed != nil {
			return nil, fmt.Errorf("statement %d of the dump of statistics: %w", i+1, failed)
		}
	}
	return s, s.check()
}

// split returns the statements of a text.
func split(text string) ([]string, error) {
	scanned, err := pgquery.Scan(text)
	if err != nil {
		return nil, errors.New("the dump of statistics is no text of SQL statements")
	}
	var statements []string
	from := int32(0)
	for _, token := range scanned.Tokens {
		if token.Token == pganalyze.Token_ASCII_59 {
			statements = append(statements, text[from:token.End])
			from = token.End
		}
	}
	return statements, nil
}

// arguments returns the arguments of a call: names and values by turns.
func arguments(call map[string]any) map[string]string {
	named := make(map[string]string)
	args := syntax.List(call["args"])
	for i := 0; i+1 < len(args); i += 2 {
		name, ok := text(args[i])
		value, also := text(args[i+1])
		if ok && also {
			named[name] = value
		}
	}
	return named
}

// text returns the text of a literal, below casts.
func text(tree any) (string, bool) {
	value := syntax.At(syntax.Bare(tree), "A_Const")
	if word, ok := syntax.At(value, "sval", "sval").(string); ok {
		return word, true
	}
	values, ok := constants(tree)
	if !ok || len(values) != 1 {
		return "", false
	}
	return values[0], true
}

func named(arguments map[string]string) (relation, error) {
	r := relation{arguments["schemaname"], arguments["relname"]}
	if r.schema == "" || r.table == "" {
		return relation{}, errors.New("it names no schemaname and relname")
	}
	return r, nil
}

func (s *Statistics) relation(call map[string]any) error {
	with := arguments(call)
	name, err := named(with)
	if err != nil {
		return err
	}
	rows, err := strconv.ParseFloat(with["reltuples"], 64)
	if err != nil {
		return errors.New("its reltuples is no number")
	}
	s.of(name).rows = rows
	return nil
}

func (s *Statistics) attribute(call map[string]any) error {
	with := arguments(call)
	name, err := named(with)
	if err != nil {
		return err
	}
	if with["attname"] == "" { // of an index's expression
		return nil
	}
	c := new(columnStatistics)
	for key, to := range map[string]*float64{"null_frac": &c.NullFrac, "n_distinct": &c.NDistinct, "avg_width": &c.AvgWidth} {
		if value, ok := with[key]; ok {
			if *to, err = strconv.ParseFloat(value, 64); err != nil {
				return fmt.Errorf("its %s is no number", key)
			}
		}
	}
	if list := strings.Trim(with["most_common_freqs"], "{}"); list != "" {
		for item := range strings.SplitSeq(list, ",") {
			f, err := strconv.ParseFloat(strings.TrimSpace(item), 64)
			if err != nil {
				return errors.New("its most_common_freqs are no numbers")
			}
			c.Frequent = append(c.Frequent, f)
		}
	}
	t := s.of(name)
	// Statistics with children's rows say more.
	if _, known := t.columns[with["attname"]]; !known || strings.HasPrefix(with["inherited"], "t") {
		t.columns[with["attname"]] = c
	}
	return nil
}

// check refuses numbers out of bounds, and bounds the numbers of rows.
func (s *Statistics) check() error {
	for name, t := range s.tables {
		if math.IsNaN(t.rows) || math.IsInf(t.rows, 0) {
			return fmt.Errorf("the statistics of %s.%s have no number of rows", name.schema, name.table)
		}
		if t.rows > mostRows {
			t.rows = mostRows
			s.Bounded = append(s.Bounded, fmt.Sprintf("the statistics give %s.%s more rows than a table can have: a trillion is taken", name.schema, name.table))
		}
		for column, c := range t.columns {
			sum := 0.0
			for _, f := range c.Frequent {
				sum += f
				if !(f >= 0 && f <= 1) {
					sum = 2
				}
			}
			if !(c.NullFrac >= 0 && c.NullFrac <= 1) || !(c.NDistinct >= -1) || math.IsInf(c.NDistinct, 0) || !(c.AvgWidth >= 0) || sum > 1.01 {
				return fmt.Errorf("the statistics of %s.%s.%s have a number out of its bounds", name.schema, name.table, column)
			}
			c.Frequent = c.Frequent[:min(len(c.Frequent), mostFrequencies)]
		}
	}
	slices.Sort(s.Bounded)
	return nil
}
