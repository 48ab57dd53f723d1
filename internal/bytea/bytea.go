// Package bytea has the type of binary columns. Unlike pgx's own type, it also reads the text format of a session
// with bytea_output = escape, as results come with [pgx.QueryExecModeExec] and [pgx.QueryExecModeSimpleProtocol].
package bytea

import (
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// Bytes is the value of a binary column, nil for NULL.
type Bytes []byte

var errMalformed = errors.New("malformed text of a bytea")

// ScanBytes takes a value that came as bytes.
func (b *Bytes) ScanBytes(value []byte) error {
	*b = slices.Clone(value)
	return nil
}

// ScanText takes a value that came as text, in either of the server's forms.
func (b *Bytes) ScanText(value pgtype.Text) error {
	if !value.Valid {
		*b = nil
		return nil
	}
	var err error
	if digits, ok := strings.CutPrefix(value.String, `\x`); ok {
		*b, err = hex.DecodeString(digits)
	} else {
		*b, err = unescape(value.String)
	}
	return err
}

// unescape decodes the older form: a backslash is doubled, and an unprintable byte is a backslash with three octal
// digits.
func unescape(text string) ([]byte, error) {
	decoded := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] != '\\':
			decoded = append(decoded, text[i])
		case strings.HasPrefix(text[i+1:], `\`):
			decoded = append(decoded, '\\')
			i++
		default:
			octal := text[i+1:]
			if len(octal) < 3 || strings.Trim(octal[:3], "01234567") != "" || octal[0] > '3' {
				return nil, errMalformed
			}
			decoded = append(decoded, (octal[0]-'0')<<6|(octal[1]-'0')<<3|(octal[2]-'0'))
			i += 3
		}
	}
	return decoded, nil
}

// BytesValue returns the bytes when the type of the parameter is known.
func (b Bytes) BytesValue() ([]byte, error) { return b, nil }

// Value returns the bytes when it is not known.
func (b Bytes) Value() (driver.Value, error) {
	if b == nil {
		return nil, nil
	}
	return []byte(b), nil
}
