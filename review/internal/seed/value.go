package seed

import (
	"fmt"
	"hash/fnv"
	"math"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maker writes the expressions of values over i, the number of the row.
type maker struct {
	now  time.Time
	rows int64
}

// salt makes the columns independent of each other.
func salt(parts ...string) uint32 {
	h := fnv.New32a()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return h.Sum32()
}

// chance is a pseudo-random number from 0 to below 1, the same for the same row.
func chance(salt uint32) string {
	return fmt.Sprintf("((hashint8extended(i, %d) & 2147483647) / 2147483648.0::float8)", salt)
}

// skewed is a whole number from 0 to below n; the lower, the more frequent: half of the rows share an eighth of them.
func skewed(n string, salt uint32) string {
	return fmt.Sprintf("floor(%s * power(%s, 3))::bigint", n, chance(salt))
}

// one of some expressions, with weights.
func oneOf(expressions []string, weights []float64, kind string, salt uint32) string {
	if len(expressions) == 1 {
		return fmt.Sprintf("(%s)::%s", expressions[0], kind)
	}
	var sum, below float64
	for _, w := range weights {
		sum += w
	}
	bounds := make([]string, len(weights)-1)
	for i := range bounds {
		below += weights[i]
		bounds[i] = strconv.FormatFloat(below/sum, 'f', 6, 64)
	}
	return fmt.Sprintf("(ARRAY[%s]::text[])[1 + width_bucket(%s, ARRAY[%s]::float8[])]::%s",
		strings.Join(expressions, ", "), chance(salt), strings.Join(bounds, ", "), kind)
}

func falling(n int) []float64 {
	weights := make([]float64, n)
	for i := range weights {
		weights[i] = 1 / float64(i+1)
	}
	return weights
}

func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

func quoteAll(texts []string) []string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quote(text)
	}
	return quoted
}

// said returns the expression that the file gives for a column; "" if it leaves the value open.
func (m maker) said(c *column, s Column, salt uint32) string {
	switch {
	case s.Null:
		return "NULL::" + c.Base
	case s.Constant != nil:
		return quote(*s.Constant) + "::" + c.Base
	case s.SQL != "":
		return fmt.Sprintf("(%s)::%s", s.SQL, c.Base)
	case len(s.Values) > 0:
		var texts []string
		var weights []float64
		for _, v := range s.Values {
			texts, weights = append(texts, quote(v.Text)), append(weights, v.Weight)
		}
		return oneOf(texts, weights, c.Base, salt)
	case len(s.Range) == 2:
		return fmt.Sprintf("(%d + floor(%d * %s))::bigint::%s", s.Range[0], s.Range[1]-s.Range[0]+1, chance(salt), c.Base)
	}
	return ""
}

// wish has the known facts about a column's values.
type wish struct {
	unique   bool
	only     []string // literals that a check allows exclusively
	often    []string // literals that occur in programs
	hints    *hints   // of checks
	distinct int64    // 0: a tenth of the rows
}

// value returns the expression of a value of the column; "" if its type has none.
func (m maker) value(c *column, w wish, salt uint32) string {
	if w.distinct == 0 {
		w.distinct = max(10, m.rows/10)
	}
	if len(w.only) > 0 {
		return oneOf(quoteAll(w.only), falling(len(w.only)), c.Base, salt)
	}
	if texts := matching(w.hints.patterns, m.rows, w.unique); isText(c.Base) && len(texts) > 0 {
		if w.unique {
			return fmt.Sprintf("(%s::text[])[1 + (i %% %d)]::%s", quoteArray(texts), len(texts), c.Base)
		}
		return fmt.Sprintf("(%s::text[])[1 + %s]::%s", quoteArray(texts), skewed(strconv.Itoa(len(texts)), salt), c.Base)
	}
	n := "i"
	if !w.unique {
		n = skewed(strconv.FormatInt(w.distinct, 10), salt)
	}
	if len(w.often) > 1 && !w.unique {
		return oneOf(quoteAll(w.often), falling(len(w.often)), c.Base, salt)
	}
	if len(w.often) == 1 && !w.unique {
		return fmt.Sprintf("CASE WHEN %s < 0.7 THEN %s::%s ELSE %s END", chance(salt+1), quote(w.often[0]), c.Base, m.ofType(c, c.Base, n, w, salt))
	}
	return m.ofType(c, c.Base, n, w, salt)
}

func isText(kind string) bool {
	name, _, _ := strings.Cut(kind, "(")
	return slices.Contains([]string{"text", "character varying", "character", "bpchar", "citext", "name", "\"char\""}, name)
}

func isNumber(kind string) bool {
	name, _, _ := strings.Cut(kind, "(")
	return slices.Contains([]string{"smallint", "integer", "bigint", "numeric", "real", "double precision", "money"}, name)
}

// ofType is a value of a type, different for different n.
func (m maker) ofType(c *column, kind, n string, w wish, salt uint32) string {
	if c.Kind == "e" && kind == c.Base {
		return fmt.Sprintf("(enum_range(NULL::%s))[1 + (%s) %% array_length(enum_range(NULL::%s), 1)]", kind, n, kind)
	}
	if kind == c.Base && c.Element != "" {
		element := m.ofType(c, c.Element, n, w, salt)
		if element == "" {
			return ""
		}
		return fmt.Sprintf("ARRAY[%s]::%s", element, kind)
	}
	if kind == c.Base && (c.Kind == "r" || c.Kind == "m") {
		return m.ofRange(c, n, salt)
	}
	name, _, _ := strings.Cut(kind, "(")
	now := quote(m.now.UTC().Format(time.DateTime) + "+00")
	switch name {
	case "boolean":
		return fmt.Sprintf("(%s < 0.2)", chance(salt))
	case "smallint", "integer", "bigint", "numeric", "real", "double precision", "money":
		return m.ofNumber(c, kind, n, w, salt)
	case "text", "character varying", "character", "bpchar", "citext", "name":
		return m.ofText(c, kind, n, w)
	case "\"char\"":
		return fmt.Sprintf("chr((97 + (%s) %% 26)::integer)::\"char\"", n)
	case "uuid":
		return fmt.Sprintf("md5(%s || (%s)::text)::uuid", quote(c.Name), n)
	case "bytea":
		return fmt.Sprintf("decode(md5(%s || (%s)::text), 'hex')", quote(c.Name), n)
	case "json", "jsonb":
		return fmt.Sprintf("jsonb_build_object('n', %s, 'name', 'name ' || %s)::%s", n, n, kind)
	case "timestamp without time zone", "timestamp with time zone", "timestamp", "timestamptz":
		zone := ""
		if name == "timestamp without time zone" || name == "timestamp" {
			zone = " AT TIME ZONE 'UTC'"
		}
		return fmt.Sprintf("((%s::timestamptz%s) - interval '1 second' * %s)", now, zone, m.age(n, w, salt, 365*24*3600))
	case "date":
		return fmt.Sprintf("(%s::timestamptz AT TIME ZONE 'UTC')::date - (%s)::integer", now, m.age(n, w, salt, 3*365))
	case "time without time zone", "time with time zone", "time", "timetz":
		return fmt.Sprintf("(time '00:00' + interval '1 second' * ((%s) %% 86400))::%s", n, kind)
	case "interval":
		return fmt.Sprintf("(interval '1 second' * (%s))", n)
	case "inet":
		return fmt.Sprintf("('10.0.0.0'::inet + (%s) %% 16777216)", n)
	case "cidr":
		return fmt.Sprintf("set_masklen('10.0.0.0'::inet + ((%s) %% 16777216), 32)::cidr", n)
	case "macaddr":
		return fmt.Sprintf("lpad(to_hex((%s) %% 1099511627776), 12, '0')::macaddr", n)
	case "macaddr8":
		return fmt.Sprintf("lpad(to_hex(%s), 16, '0')::macaddr8", n)
	case "bit", "bit varying":
		return fmt.Sprintf("(%s)::bigint::bit(64)::%s", n, kind)
	case "oid":
		return fmt.Sprintf("(%s)::oid", n)
	case "xid", "xid8":
		return fmt.Sprintf("(%s)::text::%s", n, kind)
	case "pg_lsn":
		return fmt.Sprintf("('0/0'::pg_lsn + (%s)::numeric)", n)
	case "xml":
		return fmt.Sprintf("xmlelement(name n, %s)", n)
	case "tsvector":
		return fmt.Sprintf("to_tsvector('simple', 'word' || (%s) || ' word' || (%s) %% 10)", n, n)
	case "tsquery":
		return fmt.Sprintf("to_tsquery('simple', 'word' || (%s))", n)
	case "point":
		return fmt.Sprintf("point((%s) %% 1000, (%s) / 1000)", n, n)
	case "box":
		return fmt.Sprintf("box(point(%s, %s), point((%s) + 1, (%s) + 1))", n, n, n, n)
	case "circle":
		return fmt.Sprintf("circle(point(%s, %s), 1)", n, n)
	case "hstore":
		return fmt.Sprintf("hstore('n', (%s)::text)", n)
	case "ltree":
		return fmt.Sprintf("('top.n' || (%s))::ltree", n)
	case "jsonpath":
		return "'$.n'::jsonpath"
	}
	return ""
}

// age is how many units before now a time is: more often few than many.
func (m maker) age(n string, w wish, salt uint32, most int) string {
	if w.unique {
		return n
	}
	return fmt.Sprintf("floor(%d * power(%s, 2))", most, chance(salt))
}

func (m maker) ofRange(c *column, n string, salt uint32) string {
	var lower, upper string
	switch c.Subtype {
	case "integer", "bigint", "numeric":
		lower, upper = fmt.Sprintf("(2 * (%s))::%s", n, c.Subtype), fmt.Sprintf("(2 * (%s) + 1)::%s", n, c.Subtype)
	case "date":
		lower = fmt.Sprintf("(date '2000-01-01' + (2 * (%s) %% 1000000)::integer)", n)
		upper = lower + " + 1"
	case "timestamp without time zone", "timestamp with time zone":
		lower = fmt.Sprintf("(%s::%s - interval '2 hours' * (%s))", quote(m.now.UTC().Format(time.DateTime)), c.Subtype, n)
		upper = lower + " + interval '1 hour'"
	default:
		return ""
	}
	single := strings.Replace(c.Base, "multirange", "range", 1)
	expression := fmt.Sprintf("%s(%s, %s)", single, lower, upper)
	if c.Kind == "m" {
		expression = fmt.Sprintf("%s(%s)", c.Base, expression)
	}
	return expression
}

func (m maker) ofNumber(c *column, kind, n string, w wish, salt uint32) string {
	limit := map[string]float64{"smallint": math.MaxInt16, "integer": math.MaxInt32}[kind]
	if c.Precision > 0 && kind == c.Base {
		limit = math.Pow10(c.Precision-c.Scale) - 1
	}
	for _, suffix := range []struct {
		text string
		unit int64
	}{{"_at_ms", 1}, {"_at_us", 1000}, {"_at_ns", 1_000_000}} {
		if kind == "bigint" && strings.HasSuffix(c.Name, suffix.text) && w.hints.most == nil {
			return fmt.Sprintf("(%d - 1000 * %s)::bigint * %d", m.now.UnixMilli(), m.age(n, w, salt, 365*24*3600), suffix.unit)
		}
	}
	least, most := w.hints.least, w.hints.most
	switch {
	case least != nil && most != nil:
		width := int64(math.Max(1, *most-*least+1))
		return fmt.Sprintf("(%d + (%s) %% %d)::%s", int64(*least), n, width, kind)
	case least != nil:
		n = fmt.Sprintf("%d + %s", int64(*least), n)
	case most != nil:
		n = fmt.Sprintf("%d - %s", int64(*most), n)
	}
	if limit > 0 {
		n = fmt.Sprintf("(%s) %% %d", n, int64(math.Min(limit, math.MaxInt32))+1)
	}
	if kind == "money" {
		return fmt.Sprintf("(%s)::numeric::money", n)
	}
	return fmt.Sprintf("(%s)::%s", n, kind)
}

func (m maker) ofText(c *column, kind, n string, w wish) string {
	longest := c.MaxLength
	if longest == 0 || w.hints.longest > 0 && w.hints.longest < longest {
		longest = w.hints.longest
	}
	expression := fmt.Sprintf("%s || (%s)", quote(prefix(c.Name)), n)
	if longest > 0 && longest < len(prefix(c.Name))+10 {
		expression = fmt.Sprintf("right(lpad(to_hex(%s), %d, '0'), %d)", n, min(longest, 8), longest)
	}
	if w.hints.shortest > 0 {
		expression = fmt.Sprintf("rpad(%s, greatest(%d, length(%s)), 'x')", expression, w.hints.shortest, expression)
	}
	return fmt.Sprintf("(%s)::%s", expression, kind)
}

func prefix(name string) string {
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(name, "_id"), "_key"), "_", "-") + "-"
}

// matching returns texts that match the first of the patterns; the check itself judges the others.
func matching(patterns []string, rows int64, unique bool) []string {
	if len(patterns) == 0 {
		return nil
	}
	tree, err := syntax.Parse(patterns[0], syntax.Perl)
	if err != nil {
		return nil
	}
	count := 50
	if unique {
		count = int(min(rows, 5000))
	}
	var texts []string
	seen := make(map[string]bool)
	for i := range 4 * count {
		var b strings.Builder
		write(&b, tree.Simplify(), uint32(i))
		if text := b.String(); !seen[text] && len(texts) < count {
			seen[text] = true
			texts = append(texts, text)
		}
	}
	return texts
}

// write appends a text that matches the expression: another one for another seed.
func write(b *strings.Builder, tree *syntax.Regexp, seed uint32) {
	switch tree.Op {
	case syntax.OpLiteral:
		b.WriteString(string(tree.Rune))
	case syntax.OpCharClass:
		var usual []rune
		for i := 0; i < len(tree.Rune); i += 2 {
			for r := max(tree.Rune[i], '!'); r <= min(tree.Rune[i+1], '~'); r++ {
				if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
					usual = append(usual, r)
				}
			}
		}
		if len(usual) == 0 && len(tree.Rune) > 0 {
			usual = []rune{tree.Rune[0]}
		}
		if len(usual) > 0 {
			b.WriteRune(usual[int(salt(strconv.Itoa(b.Len()), strconv.Itoa(int(seed))))%len(usual)])
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte("abcdefghijklmnopqrstuvwxyz0123456789"[salt(strconv.Itoa(b.Len()), strconv.Itoa(int(seed)))%36])
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range tree.Sub {
			write(b, sub, seed)
		}
	case syntax.OpAlternate:
		write(b, tree.Sub[int(seed)%len(tree.Sub)], seed)
	case syntax.OpStar, syntax.OpPlus:
		for range 4 {
			write(b, tree.Sub[0], seed)
		}
	case syntax.OpQuest:
		if seed%2 == 0 {
			write(b, tree.Sub[0], seed)
		}
	case syntax.OpRepeat:
		times := tree.Min
		if tree.Max < 0 {
			times = max(4, tree.Min)
		}
		for range times {
			write(b, tree.Sub[0], seed)
		}
	}
}

func quoteArray(texts []string) string {
	return "ARRAY[" + strings.Join(quoteAll(texts), ", ") + "]"
}
