package seed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// DefaultRows is the number of rows of a database if neither file nor caller gives one.
const DefaultRows = 100_000

// Spec describes the data of a project: the file seed.yaml. The zero value describes nothing.
type Spec struct {
	// Rows is the number of rows of all tables together: 0 is [DefaultRows]. The tables without a number of their own
	// share the rest.
	Rows int `yaml:"rows"`
	// Large is the number of rows from which a table counts as large: 0 is a hundredth of Rows.
	Large int `yaml:"large"`
	// Settings are the settings of the sessions of the project's programs, for planning queries.
	Settings map[string]string `yaml:"settings"`
	// Tables are named as in SQL, with a schema other than public.
	Tables map[string]Table `yaml:"tables"`
	// Statistics are sizes and distributions in production. Nil: there are none.
	Statistics *Statistics `yaml:"-"`
}

// Table describes one table.
type Table struct {
	// Rows is the number of rows. Nil: an equal share; 0: none.
	Rows *int `yaml:"rows"`
	// Columns describes single columns.
	Columns Columns `yaml:"columns"`
	// References are columns with keys of other tables but no foreign key.
	References []Reference `yaml:"references"`
	// Kinds are sets of columns in the same rows. A row is of one kind.
	Kinds []Kind `yaml:"kinds"`
}

// Kind is a kind of row: the share of rows, in proportion to the other kinds, and their values.
type Kind struct {
	Share float64 `yaml:"share"`
	Set   Columns `yaml:"set"`
}

// Reference declares columns with keys of a table. An empty To means columns of the same names.
type Reference struct {
	Columns []string `yaml:"columns"`
	Table   string   `yaml:"table"`
	To      []string `yaml:"to"`
	// Once: no two rows hold the same key.
	Once bool `yaml:"once"`
}

func (r Reference) to() []string {
	if len(r.To) == 0 {
		return r.Columns
	}
	return r.To
}

// Column describes the values of a column. In the file, a single value for every row, or one of the fields.
type Column struct {
	// Constant is the value of every row, as text; Null: every row has NULL.
	Constant *string `yaml:"-"`
	Null     bool    `yaml:"-"`
	// SQL is an expression over i, the row's number from 1.
	SQL string `yaml:"sql"`
	// Values are the values, with weights.
	Values Values `yaml:"values"`
	// Range is the smallest and the largest whole number, all equally frequent.
	Range []int64 `yaml:"range"`
	// Distinct is the number of different values. The first are the most frequent.
	Distinct int `yaml:"distinct"`
	// Nulls is the share of rows without a value, 0 to 1.
	Nulls *float64 `yaml:"nulls"`
}

// Columns are columns by name.
type Columns map[string]Column

// UnmarshalYAML takes a map. The decoder itself would not distinguish a null from a column left out.
func (c *Columns) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: columns are a map by name", node.Line)
	}
	*c = make(Columns)
	for i := 0; i < len(node.Content); i += 2 {
		var column Column
		if err := column.UnmarshalYAML(node.Content[i+1]); err != nil {
			return err
		}
		(*c)[node.Content[i].Value] = column
	}
	return nil
}

// Values are values with weights: in the file a list, whose first values are the most frequent, or a map to weights.
type Values []Value

// Value is a value, as text, and its frequency in proportion to the others.
type Value struct {
	Text   string
	Weight float64
}

// UnmarshalYAML takes a list or a map.
func (v *Values) UnmarshalYAML(node *yaml.Node) error {
	switch node.Kind {
	case yaml.SequenceNode:
		for i, item := range node.Content {
			if item.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: a value is a single one", item.Line)
			}
			*v = append(*v, Value{Text: item.Value, Weight: 1 / float64(i+1)})
		}
	case yaml.MappingNode:
		for i := 0; i < len(node.Content); i += 2 {
			var weight float64
			if err := node.Content[i+1].Decode(&weight); err != nil || weight <= 0 {
				return fmt.Errorf("line %d: the weight of %q is a number above 0", node.Content[i].Line, node.Content[i].Value)
			}
			*v = append(*v, Value{Text: node.Content[i].Value, Weight: weight})
		}
	default:
		return fmt.Errorf("line %d: values are a list, or a map to weights", node.Line)
	}
	return nil
}

// UnmarshalYAML takes a single value or the fields.
func (c *Column) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		if c.Null = node.Tag == "!!null"; !c.Null {
			c.Constant = &node.Value
		}
		return nil
	}
	type fields Column
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a column is a value, or some of sql, values, range, distinct, nulls", node.Line)
	}
	for i := 0; i < len(node.Content); i += 2 {
		if name := node.Content[i].Value; !slices.Contains([]string{"sql", "values", "range", "distinct", "nulls"}, name) {
			return fmt.Errorf("line %d: a column has no %q: it has sql, values, range, distinct, nulls", node.Content[i].Line, name)
		}
	}
	if err := node.Decode((*fields)(c)); err != nil {
		return err
	}
	switch {
	case len(c.Range) > 0 && (len(c.Range) != 2 || c.Range[0] > c.Range[1]):
		return fmt.Errorf("line %d: a range is its smallest and its largest number", node.Line)
	case c.Nulls != nil && (*c.Nulls < 0 || *c.Nulls > 1):
		return fmt.Errorf("line %d: nulls is a share, from 0 to 1", node.Line)
	}
	return nil
}

// kinds are named in the error for a file of no known kind.
const kinds = "a seed file is YAML with rows, large, settings and tables; or statistics as JSON from the query in the documentation; or the statements of PostgreSQL 18's pg_dump --statistics-only"

// ReadFile reads a seed file: a description in YAML, or statistics of production. The text shows which. An unknown name
// is an error.
func ReadFile(path string) (*Spec, error) {
	text, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	statistics, err := readStatistics(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if statistics != nil {
		return &Spec{Statistics: statistics}, nil
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil || len(node.Content) > 0 && node.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s is of an unknown kind: %s", path, kinds)
	}
	return readDescription(path, text)
}

// readBounded reads a file up to the largest size of statistics.
func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, mostStatistics+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostStatistics {
		return nil, fmt.Errorf("%s is larger than %d MiB: export the statistics of fewer tables, or without values", path, mostStatistics>>20)
	}
	return text, nil
}

func readDescription(path string, text []byte) (*Spec, error) {
	spec := new(Spec)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(spec); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for name, table := range spec.Tables {
		for _, r := range table.References {
			if r.Table == "" || len(r.Columns) == 0 || len(r.To) > 0 && len(r.To) != len(r.Columns) {
				return nil, fmt.Errorf("%s: a reference of %s names columns, a table, and as many columns of it or none", path, name)
			}
		}
		for _, k := range table.Kinds {
			if k.Share <= 0 {
				return nil, fmt.Errorf("%s: a kind of %s has no share above 0", path, name)
			}
		}
	}
	return spec, nil
}

// Options are the caller's parameters of [Fill], beside the file.
type Options struct {
	// Rows replaces the file's number of rows of all tables together; numbers for single tables change in proportion. 0:
	// the file's.
	Rows int
	// Queries are statements whose literals are values of columns.
	Queries []string
	// Later is a database of the same project after the change. If possible, the rows also satisfy its constraints, so the
	// change succeeds on the rows. Nil: there is none.
	Later Querier
	// Now is the center of all times: the beginning of its day, in UTC. Zero: today.
	Now time.Time
}

func (o *Options) rows(spec *Spec) (total int, factor float64) {
	said := spec.Rows
	if said == 0 {
		said = DefaultRows
	}
	if o.Rows == 0 {
		return said, 1
	}
	return o.Rows, float64(o.Rows) / float64(said)
}

// LargeFrom returns the number of rows from which a table of the filled database counts as large.
func LargeFrom(spec *Spec, opts Options) int64 {
	total, factor := opts.rows(spec)
	if spec.Large > 0 {
		return max(1, int64(float64(spec.Large)*factor))
	}
	return max(100, int64(total/100))
}

// Result has the filled tables, by name.
type Result struct {
	Tables []Filled
	// Missing are tables and columns the seed file names and the schema does not have.
	Missing []string
}

// Filled is a table, named as in SQL, and its number of rows. Reason says why there are none, or too few.
type Filled struct {
	Table  string
	Rows   int64
	Reason string
	// Seen is the name as the session's search path shows it.
	Seen string
	// Production is the number of rows in production, by the statistics. Below 0: not known.
	Production int64
}

// Empty returns, one line each, the empty tables, with the reasons.
func (r *Result) Empty() []string {
	var lines []string
	for _, t := range r.Tables {
		if t.Rows == 0 && t.Reason != "" {
			lines = append(lines, t.Table+": "+strings.TrimSpace(t.Reason))
		}
	}
	return lines
}

// Production returns how many rows a table has in production, named as in [Filled], if known.
func (r *Result) Production(table string) (rows int64, known bool) {
	for _, t := range r.Tables {
		if t.Table == table || t.Seen == table {
			return t.Production, t.Production >= 0
		}
	}
	return 0, false
}

// Rows returns how many rows a table has, named as in [Filled].
func (r *Result) Rows(table string) int64 {
	for _, t := range r.Tables {
		if t.Table == table || t.Seen == table {
			return t.Rows
		}
	}
	return 0
}
