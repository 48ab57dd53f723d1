package engine

import (
	"bytes"
	"slices"
)

// argScan reads a payload once and writes it in the form of [appendCanonical]. It serves texts of ASCII without escapes,
// integers, and names that occur once, as most payloads have them. For any other payload it gives up.
type argScan struct {
	in      []byte
	at      int
	members []argMember // of the objects that are being read
	sorted  []byte
}

// argMember is the place of a member, such as "name":1, in the output.
type argMember struct {
	from, name, end int // name is the end of the name with its quotes
}

// maxArgDepth is the deepest nesting that argScan serves.
const maxArgDepth = 32

// canonical appends the payload, or those of its fields. It reports false if it does not serve the payload.
func (s *argScan) canonical(to, payload []byte, fields []string) ([]byte, bool) {
	s.in, s.at, s.members = payload, 0, s.members[:0]
	if s.next() != '{' && len(fields) > 0 {
		return nil, false
	}
	var ok bool
	if s.next() == '{' {
		to, ok = s.object(to, fields, 0)
	} else {
		to, ok = s.value(to, 0)
	}
	s.next()
	ok = ok && s.at == len(s.in)
	s.in = nil
	return to, ok
}

// next skips spaces and returns the next byte, 0 at the end.
func (s *argScan) next() byte {
	for ; s.at < len(s.in); s.at++ {
		switch c := s.in[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (s *argScan) value(to []byte, depth int) ([]byte, bool) {
	switch c := s.next(); {
	case c == '"':
		return s.text(to)
	case c == '{':
		return s.object(to, nil, depth)
	case c == '[':
		return s.array(to, depth)
	case c == '-' || '0' <= c && c <= '9':
		return s.integer(to)
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if end := s.at + len(word); end <= len(s.in) && string(s.in[s.at:end]) == word {
			s.at = end
			return append(to, word...), true
		}
	}
	return nil, false
}

// text copies a text with its quotes.
func (s *argScan) text(to []byte) ([]byte, bool) {
	for i := s.at + 1; i < len(s.in); i++ {
		switch c := s.in[i]; {
		case c == '"':
			to = append(to, s.in[s.at:i+1]...)
			s.at = i + 1
			return to, true
		case c < ' ' || c == '\\' || c >= 0x80:
			return nil, false
		}
	}
	return nil, false
}

// integer writes an integer as [canonicalNumber] does.
func (s *argScan) integer(to []byte) ([]byte, bool) {
	from := s.at
	if s.in[s.at] == '-' {
		s.at++
	}
	digits := s.at
	for s.at < len(s.in) && '0' <= s.in[s.at] && s.in[s.at] <= '9' {
		s.at++
	}
	end := s.at
	switch {
	case end == digits, end < len(s.in) && (s.in[end] == '.' || s.in[end] == 'e' || s.in[end] == 'E'):
		return nil, false
	case s.in[digits] == '0':
		return append(to, '0'), end == digits+1 // a minus too means 0
	case s.in[end-1] == '0':
		number, err := canonicalNumber(string(s.in[from:end]))
		return append(to, number...), err == nil
	}
	return append(to, s.in[from:end]...), true
}

func (s *argScan) array(to []byte, depth int) (_ []byte, ok bool) {
	if depth == maxArgDepth {
		return nil, false
	}
	s.at++
	to = append(to, '[')
	if s.next() == ']' {
		s.at++
		return append(to, ']'), true
	}
	for {
		if to, ok = s.value(to, depth+1); !ok {
			return nil, false
		}
		c := s.next()
		s.at++
		switch c {
		case ',', ']':
			if to = append(to, c); c == ']' {
				return to, true
			}
		default:
			return nil, false
		}
	}
}

// object writes an object, or those of its fields if there are any.
func (s *argScan) object(to []byte, fields []string, depth int) (_ []byte, ok bool) {
	if depth == maxArgDepth {
		return nil, false
	}
	first, from := len(s.members), len(to)
	s.at++
	if s.next() == '}' {
		s.at++
		return append(to, "{}"...), len(fields) == 0
	}
	for {
		m := argMember{from: len(to)}
		if s.next() != '"' {
			return nil, false
		}
		if to, ok = s.text(to); !ok || s.next() != ':' {
			return nil, false
		}
		m.name = len(to)
		s.at++
		if to, ok = s.value(append(to, ':'), depth+1); !ok {
			return nil, false
		}
		m.end = len(to)
		s.members = append(s.members, m)
		c := s.next()
		s.at++
		switch c {
		case ',':
		case '}':
			return s.join(to, from, first, fields)
		default:
			return nil, false
		}
	}
}

// join sorts the members from first on, whose places begin at from, and writes them in their order.
func (s *argScan) join(to []byte, from, first int, fields []string) ([]byte, bool) {
	name := func(m argMember) []byte { return to[m.from:m.name] }
	members := s.members[first:]
	s.members = s.members[:first]
	if len(fields) > 0 {
		members = slices.DeleteFunc(members, func(m argMember) bool {
			quoted := name(m)
			return !slices.Contains(fields, string(quoted[1:len(quoted)-1]))
		})
		if len(members) != len(fields) {
			return nil, false
		}
	}
	slices.SortFunc(members, func(a, b argMember) int {
		// Without its quote, a name comes before those that begin with it.
		return bytes.Compare(to[a.from:a.name-1], to[b.from:b.name-1])
	})
	s.sorted = append(s.sorted[:0], '{')
	for i, m := range members {
		if i > 0 {
			if bytes.Equal(name(m), name(members[i-1])) {
				return nil, false
			}
			s.sorted = append(s.sorted, ',')
		}
		s.sorted = append(s.sorted, to[m.from:m.end]...)
	}
	s.sorted = append(s.sorted, '}')
	return append(to[:from], s.sorted...), true
}
