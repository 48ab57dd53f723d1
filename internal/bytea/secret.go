package bytea

import (
	"fmt"
	"log/slog"
)

// Secret is a value that no log shows, not even a tracer that logs the arguments of statements.
type Secret struct{ Bytes }

// Format writes a placeholder for every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "<REDACTED:len=%d>", len(s.Bytes)) }

// LogValue returns the same placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(s)) }

// MarshalText makes JSON of the same placeholder.
func (s Secret) MarshalText() ([]byte, error) { return fmt.Append(nil, s), nil }
