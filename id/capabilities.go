package id

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/internal/hash"
)

// Capabilities is a sorted set of distinct capability tokens, required by an execution or offered by a worker. Tokens are
// compared exactly, byte by byte.
type Capabilities []string

// Limits of a capability set.
const (
	MaxCapabilities    = 256
	MaxCapabilitiesCSV = 4096 // bytes of the comma-separated form
)

// NewCapabilities returns the set of tokens, never nil. It does not check them: see
// [Capabilities.Validate].
func NewCapabilities(tokens ...string) Capabilities {
	set := append(make(Capabilities, 0, len(tokens)), tokens...)
	slices.Sort(set)
	return slices.Compact(set)
}

// ParseCapabilities reads the stored comma-separated form; empty tokens are dropped.
func ParseCapabilities(csv string) Capabilities {
	set := NewCapabilities(strings.Split(csv, ",")...)
	if set[0] == "" {
		set = set[1:]
	}
	return set
}

// Validate returns an error for a set that is too large, or a token that is empty or contains a comma, a control
// character, white space or invalid UTF-8.
func (c Capabilities) Validate() error {
	const typ = "capabilities"
	if len(c) > MaxCapabilities {
		return &ParseError{Type: typ, Reason: ReasonTooMany, Detail: strconv.Itoa(len(c))}
	}
	length := max(0, len(c)-1)
	for _, token := range c {
		if err := CheckCapability(token); err != nil {
			return err
		}
		length += len(token)
	}
	if length > MaxCapabilitiesCSV {
		return &ParseError{Type: typ, Reason: ReasonTooLong, Detail: strconv.Itoa(length)}
	}
	return nil
}

// CheckCapability returns an error for a token no capability set may contain.
func CheckCapability(token string) error {
	const typ = "capability"
	switch {
	case token == "":
		return &ParseError{Type: typ, Reason: ReasonEmpty}
	case !utf8.ValidString(token):
		return &ParseError{Type: typ, Reason: ReasonInvalidUTF8}
	case strings.ContainsFunc(token, isForbiddenInCapability):
		return refuse(typ, ReasonForbiddenCharacter, token)
	}
	return nil
}

func isForbiddenInCapability(r rune) bool {
	return r == ',' || unicode.IsControl(r) || unicode.IsSpace(r)
}

// CSV returns the stored form: the tokens joined with commas, empty for the empty set.
func (c Capabilities) CSV() string { return strings.Join(c, ",") }

// Digest returns a short digest of the set for logs.
func (c Capabilities) Digest() string { return hash.Digest8(c.CSV()) }

// Covers reports whether every required token is in c.
func (c Capabilities) Covers(required Capabilities) bool { return len(c.missing(required, 1)) == 0 }

// Missing returns the required tokens that c lacks, in order.
func (c Capabilities) Missing(required Capabilities) Capabilities {
	return c.missing(required, len(required))
}

func (c Capabilities) missing(required Capabilities, limit int) Capabilities {
	var missing Capabilities
	for _, token := range required {
		if len(missing) == limit {
			break
		}
		if _, found := slices.BinarySearch(c, token); !found {
			missing = append(missing, token)
		}
	}
	return missing
}
