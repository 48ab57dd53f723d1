package seed

import (
	"fmt"
	"hash/fnv"
	"math"
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

// skewed is a whole number from 0 to below n; the lower, the more frequent: half of the rows share an eighth of the
// numbers.
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

// said returns the file's expression for a column; "" if the file leaves the value open.
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
	only     []string // literals a check allows exclusively
	often    []string // literals in programs
	hints    *hints   // of checks
	distinct int64    // 0: a tenth of the rows

	statistic *columnStatistics // of production; nil: not known
}

// like returns the wish for values distributed as in production.
func (w wish) like(s *columnStatistics, rows int64, scale float64) wish {
	w.statistic = s
	if w.distinct == 0 {
		w.distinct = s.distinct(rows, scale)
	}
	if s.NDistinct == -1 && len(w.only) == 0 {
		w.unique, w.often = true, nil
	}
	wide := *w.hints
	if wide.shortest == 0 && wide.longest == 0 {
		wide.shortest = int(min(s.AvgWidth, mostWidth)) - 1 // a byte is the length
	}
	w.hints = &wide
	return w
}

// mostWidth is the greatest length of a text made longer to be like production's.
const mostWidth = 2000

// number is a whole number from 0 to below n, distributed as wished.
func (w wish) number(n string, salt uint32) string {
	if w.statistic != nil {
		return w.statistic.number(n, salt)
	}
	return skewed(n, salt)
}

// value returns the expression of a value of the column; "" if the type has none.
func (m maker) value(c *column, w wish, salt uint32) string {
	if w.distinct == 0 {
		w.distinct = max(10, m.rows/10)
	}
	if len(w.only) > 0 {
		return oneOf(quoteAll(w.only), w.statistic.weights(len(w.only)), c.Base, salt)
	}
	if texts := matching(w.hints.patterns, m.rows, w.unique); c.text() && len(texts) > 0 {
		if w.unique {
			return fmt.Sprintf("(%s::text[])[1 + (i %% %d)]::%s", quoteArray(texts), len(texts), c.Base)
		}
		return fmt.Sprintf("(%s::text[])[1 + %s]::%s", quoteArray(texts), skewed(strconv.Itoa(len(texts)), salt), c.Base)
	}
	n := "i"
	if !w.unique {
		n = w.number(strconv.FormatInt(w.distinct, 10), salt)
	}
	if len(w.often) > 1 && !w.unique {
		return oneOf(quoteAll(w.often), w.statistic.weights(len(w.often)), c.Base, salt)
	}
	if len(w.often) == 1 && !w.unique {
		return fmt.Sprintf("CASE WHEN %s < 0.7 THEN %s::%s ELSE %s END", chance(salt+1), quote(w.often[0]), c.Base, m.ofType(c, n, w, salt))
	}
	return m.ofType(c, n, w, salt)
}

// text reports whether the column's values are texts.
func (c *column) text() bool {
	switch c.sort.Plain {
	case "text", "varchar", "bpchar", "citext", "name", "char":
		return c.sort.Kind == "b"
	}
	return false
}

// number reports whether the column's values are numbers.
func (c *column) number() bool {
	switch c.sort.Plain {
	case "int2", "int4", "int8", "numeric", "float4", "float8", "money":
		return true
	}
	return false
}

// age is how many units before now a time is: more often few than many.
func (m maker) age(n string, w wish, salt uint32, most int) string {
	if w.unique {
		return n
	}
	return fmt.Sprintf("floor(%d * power(%s, 2))", most, chance(salt))
}

func (m maker) ofNumber(c *column, n string, w wish, salt uint32) string {
	kind := c.Base
	limit := map[string]float64{"int2": math.MaxInt16, "int4": math.MaxInt32}[c.sort.Plain]
	if c.Precision > 0 {
		limit = math.Pow10(c.Precision-c.Scale) - 1
	}
	for _, suffix := range []struct {
		text string
		unit int64
	}{{"_at_ms", 1}, {"_at_us", 1000}, {"_at_ns", 1_000_000}} {
		if c.sort.Plain == "int8" && strings.HasSuffix(c.Name, suffix.text) && w.hints.most == nil {
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
	if c.sort.Plain == "money" {
		return fmt.Sprintf("(%s)::numeric::money", n)
	}
	return fmt.Sprintf("(%s)::%s", n, kind)
}

func (m maker) ofText(c *column, n string, w wish) string {
	longest := c.MaxLength
	if longest == 0 || w.hints.longest > 0 && w.hints.longest < longest {
		longest = w.hints.longest
	}
	expression := fmt.Sprintf("%s || (%s)", quote(prefix(c.Name)), n)
	if longest > 0 && longest < len(prefix(c.Name))+10 {
		expression = fmt.Sprintf("right(lpad(to_hex(%s), %d, '0'), %d)", n, min(longest, 8), longest)
	}
	if w.hints.shortest > 0 && (c.MaxLength == 0 || w.hints.shortest <= c.MaxLength) {
		expression = fmt.Sprintf("rpad(%s, greatest(%d, length(%s)), 'x')", expression, w.hints.shortest, expression)
	}
	return fmt.Sprintf("(%s)::%s", expression, c.Base)
}

func prefix(name string) string {
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(name, "_id"), "_key"), "_", "-") + "-"
}

func quoteArray(texts []string) string {
	return "ARRAY[" + strings.Join(quoteAll(texts), ", ") + "]"
}
