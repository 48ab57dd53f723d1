package seed

import (
	"fmt"
	"strings"
	"time"
)

// deepest is how deep a type may consist of others. A composite may have an array of itself.
const deepest = 6

// ofType returns a value of the column's type, different for different n; "" if none is known.
func (m maker) ofType(c *column, n string, w wish, salt uint32) string {
	switch {
	case c.depth > deepest:
		return ""
	case c.sort.Kind == "e":
		if len(c.sort.Labels) == 0 {
			return ""
		}
		return fmt.Sprintf("(%s::text[])[1 + (%s) %% %d]::%s", quoteArray(c.sort.Labels), n, len(c.sort.Labels), c.Base)
	case c.sort.Kind == "c":
		return m.ofComposite(c, n, salt)
	case c.sort.Kind == "r" || c.sort.Kind == "m":
		return m.ofRange(c, n, salt)
	case c.sort.Element != 0:
		element := m.ofPart(c.part(c.Name, c.sort.Element, c.Modifier), n, salt)
		if element == "" {
			return ""
		}
		return fmt.Sprintf("ARRAY[%s]::%s", element, c.Base)
	}
	if value := m.ofTime(c, n, w, salt); value != "" {
		return value
	}
	if value := m.ofPlace(c, n); value != "" {
		return value
	}
	return m.ofOther(c, n, w, salt)
}

// ofPart returns a value of a type another one consists of, with the conditions of its domain.
func (m maker) ofPart(part *column, n string, salt uint32) string {
	w := wish{unique: true, hints: domainHints(part.DomainChecks)}
	w.only = part.allowed(w.hints)
	if len(w.only) > 0 {
		return fmt.Sprintf("(%s::text[])[1 + (%s) %% %d]::%s", quoteArray(w.only), n, len(w.only), part.Base)
	}
	if texts := matching(w.hints.patterns, m.rows, false); part.text() && len(texts) > 0 {
		return fmt.Sprintf("(%s::text[])[1 + (%s) %% %d]::%s", quoteArray(texts), n, len(texts), part.Base)
	}
	return m.ofType(part, n, w, salt)
}

func (m maker) ofComposite(c *column, n string, salt uint32) string {
	var values []string
	for _, a := range c.sort.attributes {
		part := c.part(a.Name, a.Type, a.Modifier)
		value := m.ofPart(part, n, salt)
		if value == "" {
			if part.NotNull {
				return ""
			}
			value = "NULL"
		}
		values = append(values, value)
	}
	return fmt.Sprintf("ROW(%s)::%s", strings.Join(values, ", "), c.Base)
}

// ofRange returns a range without an overlap with another n's.
func (m maker) ofRange(c *column, n string, salt uint32) string {
	subtype := c.part(c.Name, c.sort.Subtype, -1)
	even, odd := fmt.Sprintf("(2 * (%s))", n), fmt.Sprintf("(2 * (%s) + 1)", n)
	var lower, upper string
	switch subtype.sort.Plain {
	case "date":
		lower = fmt.Sprintf("(date '2000-01-01' + (%s %% 1000000)::integer)", even)
		upper = lower + " + 1"
	case "timestamp", "timestamptz":
		lower = fmt.Sprintf("(%s::%s - interval '2 hours' * (%s))", quote(m.now.UTC().Format(time.DateTime)), subtype.Base, n)
		upper = lower + " + interval '1 hour'"
	default:
		w := wish{unique: true, hints: new(hints)}
		lower, upper = m.ofType(subtype, even, w, salt), m.ofType(subtype, odd, w, salt)
		if lower == "" {
			return ""
		}
		if !subtype.number() {
			lower, upper = fmt.Sprintf("least(%s, %s)", lower, upper), fmt.Sprintf("greatest(%s, %s)", lower, upper)
		}
	}
	expression := fmt.Sprintf("%s(%s, %s)", c.sort.Range, lower, upper)
	if c.sort.Kind == "m" {
		expression = fmt.Sprintf("%s(%s)", c.sort.Name, expression)
	}
	return expression
}

func (m maker) ofTime(c *column, n string, w wish, salt uint32) string {
	now := quote(m.now.UTC().Format(time.DateTime) + "+00")
	switch c.sort.Plain {
	case "timestamp", "timestamptz":
		zone := ""
		if c.sort.Plain == "timestamp" {
			zone = " AT TIME ZONE 'UTC'"
		}
		return fmt.Sprintf("((%s::timestamptz%s) - interval '1 second' * %s)", now, zone, m.age(n, w, salt, 365*24*3600))
	case "date":
		return fmt.Sprintf("(%s::timestamptz AT TIME ZONE 'UTC')::date - (%s)::integer", now, m.age(n, w, salt, 3*365))
	case "time", "timetz":
		return fmt.Sprintf("(time '00:00' + interval '1 second' * ((%s) %% 86400))::%s", n, c.Base)
	case "interval":
		return fmt.Sprintf("(interval '1 second' * (%s))", n)
	}
	return ""
}

// ofPlace returns a value of the types of shapes and of networks.
func (m maker) ofPlace(c *column, n string) string {
	switch c.sort.Plain {
	case "point":
		return fmt.Sprintf("point((%s) %% 1000, (%s) / 1000)", n, n)
	case "line":
		return fmt.Sprintf("line(point(0, %s), point(1, (%s) + 1))", n, n)
	case "lseg":
		return fmt.Sprintf("lseg(point(%s, 0), point((%s) + 1, 1))", n, n)
	case "box":
		return fmt.Sprintf("box(point(%s, %s), point((%s) + 1, (%s) + 1))", n, n, n, n)
	case "path":
		return fmt.Sprintf("(format('[(%%s,0),(%%s,1)]', %s, (%s) + 1))::path", n, n)
	case "polygon":
		return fmt.Sprintf("polygon(box(point(%s, 0), point((%s) + 1, 1)))", n, n)
	case "circle":
		return fmt.Sprintf("circle(point(%s, %s), 1)", n, n)
	case "cube":
		return fmt.Sprintf("(format('(%%s)', %s))::%s", n, c.Base)
	case "seg":
		return fmt.Sprintf("(%s)::text::%s", n, c.Base)
	case "inet":
		return fmt.Sprintf("('10.0.0.0'::inet + (%s) %% 16777216)", n)
	case "cidr":
		return fmt.Sprintf("set_masklen('10.0.0.0'::inet + ((%s) %% 16777216), 32)::cidr", n)
	case "macaddr":
		return fmt.Sprintf("lpad(to_hex((%s) %% 1099511627776), 12, '0')::macaddr", n)
	case "macaddr8":
		return fmt.Sprintf("lpad(to_hex(%s), 16, '0')::macaddr8", n)
	}
	return ""
}

func (m maker) ofOther(c *column, n string, w wish, salt uint32) string {
	if c.text() && c.sort.Plain != "char" {
		return m.ofText(c, n, w)
	}
	if c.number() {
		return m.ofNumber(c, n, w, salt)
	}
	switch c.sort.Plain {
	case "bool":
		return fmt.Sprintf("(%s < 0.2)", chance(salt))
	case "char":
		return fmt.Sprintf("chr((97 + (%s) %% 26)::integer)::\"char\"", n)
	case "uuid":
		return fmt.Sprintf("md5(%s || (%s)::text)::uuid", quote(c.Name), n)
	case "bytea":
		return fmt.Sprintf("decode(md5(%s || (%s)::text), 'hex')", quote(c.Name), n)
	case "json", "jsonb":
		return m.ofJSON(c, n, w)
	case "bit":
		return fmt.Sprintf("(%s)::bigint::bit(64)::bit(%d)", n, max(1, c.MaxLength))
	case "varbit":
		if c.MaxLength > 0 {
			return fmt.Sprintf("(%s)::bigint::bit(%d)::varbit", n, c.MaxLength)
		}
		return fmt.Sprintf("(%s)::bigint::bit(64)::varbit", n)
	case "oid":
		return fmt.Sprintf("(%s)::oid", n)
	case "xid", "xid8", "txid_snapshot", "pg_snapshot", "refcursor", "regclass", "tid":
		return m.ofServer(c, n)
	case "pg_lsn":
		return fmt.Sprintf("('0/0'::pg_lsn + (%s)::numeric)", n)
	case "xml":
		return fmt.Sprintf("xmlelement(name n, %s)", n)
	case "tsvector":
		return fmt.Sprintf("to_tsvector('simple', 'word' || (%s) || ' word' || (%s) %% 10)", n, n)
	case "tsquery":
		return fmt.Sprintf("to_tsquery('simple', 'word' || (%s))", n)
	case "hstore":
		return fmt.Sprintf("(format('n=>%%s', %s))::%s", n, c.Base)
	case "ltree":
		return fmt.Sprintf("('top.n' || (%s))::%s", n, c.Base)
	case "lquery", "ltxtquery":
		return fmt.Sprintf("('n' || (%s))::%s", n, c.Base)
	case "jsonpath":
		return fmt.Sprintf("('$.n' || (%s))::jsonpath", n)
	}
	return ""
}

// ofServer returns a value of the types the server uses itself.
func (m maker) ofServer(c *column, n string) string {
	switch c.sort.Plain {
	case "txid_snapshot", "pg_snapshot":
		return fmt.Sprintf("(format('%%s:%%s:', (%s) + 1, (%s) + 1))::%s", n, n, c.Base)
	case "regclass":
		return "'pg_class'::regclass"
	case "tid":
		return fmt.Sprintf("(format('(%%s,1)', %s))::tid", n)
	}
	return fmt.Sprintf("(%s)::text::%s", n, c.Base)
}
