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

// DefaultRows is how many rows a database gets where nobody says.
const DefaultRows = 100_000

// Spec is what a project says of its data: the file seed.yaml. The zero value says nothing.
type Spec struct {
	// Rows is the number of rows of all tables together: 0 is [DefaultRows]. The tables without a number of their own
	// share what the others leave.
	Rows int `yaml:"rows"`
	// Large is from how many rows on a table counts as large: 0 is a hundredth of Rows.
	Large int `yaml:"large"`
	// Settings are what the project's programs set in their sessions: the server plans queries with them.
	Settings map[string]string `yaml:"settings"`
	// Tables are named as they are in SQL, with a schema where it is not public.
	Tables map[string]Table `yaml:"tables"`
}

// Table is what is said of one table.
type Table struct {
	// Rows is how many it gets. Nil: an equal share; 0: it stays empty.
	Rows *int `yaml:"rows"`
	// Columns says what single columns hold.
	Columns Columns `yaml:"columns"`
	// References are columns that hold keys of other tables without a foreign key that says so.
	References []Reference `yaml:"references"`
	// Kinds are sets of columns that occur together. A row is of one kind.
	Kinds []Kind `yaml:"kinds"`
}

// Kind is a kind of row: the share of the rows that are of it, in proportion to the other kinds, and what they hold.
type Kind struct {
	Share float64 `yaml:"share"`
	Set   Columns `yaml:"set"`
}

// Reference says that columns hold keys of a table. To empty: columns of the same names.
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

// Column is what a column holds. In the file it is a single value, which every row holds, or one of the fields.
type Column struct {
	// Constant is the value of every row, as text; or Null says that none has one.
	Constant *string `yaml:"-"`
	Null     bool    `yaml:"-"`
	// SQL is an expression over i, the row's number from 1.
	SQL string `yaml:"sql"`
	// Values are what it holds, with weights.
	Values Values `yaml:"values"`
	// Range is the smallest and the largest whole number, all as frequent.
	Range []int64 `yaml:"range"`
	// Distinct is the number of different values, of which the first are the most frequent.
	Distinct int `yaml:"distinct"`
	// Nulls is the share of rows without a value, 0 to 1.
	Nulls *float64 `yaml:"nulls"`
}

// Columns are columns by name.
type Columns map[string]Column

// UnmarshalYAML takes a map. The decoder itself would not tell a null from a column that is left out.
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

// Value is a value, as text, and how frequent it is in proportion to the others.
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

// ReadFile reads a seed file. A name that it does not know is an error.
func ReadFile(path string) (*Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
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

// Options are what the caller of [Fill] says beside the file.
type Options struct {
	// Rows is the number of rows of all tables together in place of the file's: its tables' numbers change in
	// proportion. 0: the file's.
	Rows int
	// Queries are statements whose literals tell what columns hold.
	Queries []string
	// Later is a database of the same project after the change, whose constraints the rows keep too where they can,
	// so that the change succeeds on them. Nil: there is none.
	Later Querier
	// Now is what times are made around: the beginning of its day, in UTC. Zero: today.
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

// LargeFrom returns from how many rows on a table of the filled database counts as large.
func LargeFrom(spec *Spec, opts Options) int64 {
	total, factor := opts.rows(spec)
	if spec.Large > 0 {
		return max(1, int64(float64(spec.Large)*factor))
	}
	return max(100, int64(total/100))
}

// Result says what the tables hold now, by name.
type Result struct {
	Tables []Filled
	// Missing are tables and columns that the seed file names and the schema does not have.
	Missing []string
}

// Filled is a table, named as in SQL, and its rows. Reason says why it has none, or fewer than it was to have.
type Filled struct {
	Table  string
	Rows   int64
	Reason string
}

// Empty returns the tables without rows that were to have some, with the reasons, and what the seed file names for nothing:
// one line each.
func (r *Result) Empty() []string {
	var lines []string
	for _, t := range r.Tables {
		if t.Rows == 0 && t.Reason != "" {
			lines = append(lines, t.Table+": "+strings.TrimSpace(t.Reason))
		}
	}
	for _, name := range r.Missing {
		lines = append(lines, name+" is in the seed file and not in the schema")
	}
	return lines
}

// Rows returns how many rows a table has, named as in [Filled].
func (r *Result) Rows(table string) int64 {
	for _, t := range r.Tables {
		if t.Table == table {
			return t.Rows
		}
	}
	return 0
}
