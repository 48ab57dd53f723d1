package bytea

import (
	"database/sql/driver"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgtype"
)

// SecretText is a text that no log shows.
type SecretText string

// ScanText takes the stored text, "" for NULL.
func (s *SecretText) ScanText(value pgtype.Text) error {
	*s = SecretText(value.String)
	return nil
}

// TextValue returns the text when the type of the parameter is known.
func (s SecretText) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(s), Valid: true}, nil
}

// Value returns the text when it is not known.
func (s SecretText) Value() (driver.Value, error) { return string(s), nil }

// Format writes a placeholder for every verb.
func (s SecretText) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "<REDACTED:len=%d>", len(s)) }

// LogValue returns the same placeholder.
func (s SecretText) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(s)) }

// MarshalText makes JSON of the same placeholder.
func (s SecretText) MarshalText() ([]byte, error) { return fmt.Append(nil, s), nil }
