package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// uniqueKey is the key of unique work: the first half of a SHA-256. A billion keys collide with a probability below
// 10^-20.
type uniqueKey [sha256.Size / 2]byte

func (k uniqueKey) compare(other uniqueKey) int { return bytes.Compare(k[:], other[:]) }

func (k uniqueKey) pg() pgtype.UUID { return pgtype.UUID{Bytes: k, Valid: true} }

// uniqueText describes the uniqueness of a stored execution, "" if it is not unique.
func uniqueText(lasts string, key pgtype.UUID) string {
	if !key.Valid {
		return ""
	}
	return lasts + ":" + hex.EncodeToString(key.Bytes[:])
}

// uniqueKeyer computes keys. Its buffers are reused by the next key.
type uniqueKeyer struct {
	key  []byte
	args []byte
}

// setUnique sets the key of a checked creation. Without a delay, the period is the one of nowMs.
func (k *uniqueKeyer) setUnique(c *creation, u *Unique, nowMs int64) error {
	k.key = append(k.key[:0], "ffx_unique/1\n"...)
	addPart(k, true, c.namespace)
	addPart(k, true, c.kind)
	addPart(k, u.ByLane, c.lane)
	k.args = k.args[:0]
	if u.byArgs() {
		var err error
		if k.args, err = appendArgs(k.args, c.payload, u.Fields); err != nil {
			return err
		}
	}
	addPart(k, u.byArgs(), k.args)
	period := ""
	if ms := u.Period.Milliseconds(); ms > 0 {
		due := c.delayUntilMs
		if due == 0 {
			due = nowMs
		}
		period = fmt.Sprintf("%d*%d", ms, due/ms)
	}
	addPart(k, period != "", period)
	sum := sha256.Sum256(k.key)
	c.unique = &uniqueWork{Unique: u, key: uniqueKey(sum[:])}
	return nil
}

// addPart adds a part to the hashed text, or a minus if the key doesn't have the part.
func addPart[T string | []byte](k *uniqueKeyer, has bool, part T) {
	if !has {
		k.key = append(k.key, '-')
		return
	}
	k.key = append(strconv.AppendInt(k.key, int64(len(part)), 10), ':')
	k.key = append(k.key, part...)
}

// appendArgs appends the selected part of a payload, in the same form for equal values.
func appendArgs(to, payload []byte, fields []string) ([]byte, error) {
	if len(fields) == 0 {
		value, err := decodeArgs[any](payload)
		if err != nil {
			return append(append(to, "bytes "...), payload...), nil
		}
		return appendCanonical(append(to, "json "...), value)
	}
	object, err := decodeArgs[map[string]any](payload)
	if err != nil || object == nil {
		return nil, core.Invalid("Unique.Fields", "are set, but the payload is no JSON object")
	}
	chosen := make(map[string]any, len(fields))
	for _, field := range fields {
		value, has := object[field]
		if !has {
			return nil, core.Invalid("Unique.Fields", fmt.Sprintf("has %q, which the payload lacks", field))
		}
		chosen[field] = value
	}
	return appendCanonical(append(to, "json "...), chosen)
}

var errNotOneValue = errors.New("not one value")

func decodeArgs[T any](payload []byte) (value T, err error) {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return value, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return value, errNotOneValue
	}
	return value, nil
}

// appendCanonical appends a decoded value as JSON without spaces, with names in byte order, texts by [appendText] and
// numbers by [canonicalNumber].
func appendCanonical(to []byte, value any) (_ []byte, err error) {
	switch value := value.(type) {
	case map[string]any:
		for i, name := range slices.Sorted(maps.Keys(value)) {
			to = append(to, "{,"[min(i, 1)])
			to = append(appendText(to, name), ':')
			if to, err = appendCanonical(to, value[name]); err != nil {
				return nil, err
			}
		}
		if len(value) == 0 {
			to = append(to, '{')
		}
		return append(to, '}'), nil
	case []any:
		to = append(to, '[')
		for i, item := range value {
			if i > 0 {
				to = append(to, ',')
			}
			if to, err = appendCanonical(to, item); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	case string:
		return appendText(to, value), nil
	case json.Number:
		number, err := canonicalNumber(string(value))
		return append(to, number...), err
	case bool:
		return strconv.AppendBool(to, value), nil
	}
	return append(to, "null"...), nil
}

// appendText appends a text as a JSON string in UTF-8, with escapes for the quote, the backslash and, as \u001f, for
// control characters below U+0020.
func appendText(to []byte, text string) []byte {
	to = append(to, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ':
			to = fmt.Appendf(to, `\u%04x`, c)
		case c == '"', c == '\\':
			to = append(to, '\\', c)
		default:
			to = append(to, c)
		}
	}
	return append(to, '"')
}

// canonicalNumber returns a JSON number as digits without zeros at either end, and the power of ten unless 0: 4711,
// -15e-1, 47e2. The result is exact, whatever the size.
func canonicalNumber(number string) (string, error) {
	digits, negative := strings.CutPrefix(number, "-")
	exponent := int64(0)
	if at := strings.IndexAny(digits, "eE"); at >= 0 {
		var err error
		if exponent, err = strconv.ParseInt(digits[at+1:], 10, 32); err != nil {
			return "", core.Invalid("payload", "has a number whose exponent is out of range")
		}
		digits = digits[:at]
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	exponent -= int64(len(fraction))
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return "0", nil
	}
	exponent += int64(len(digits) - len(significant))
	if negative {
		significant = "-" + significant
	}
	if exponent != 0 {
		significant += "e" + strconv.FormatInt(exponent, 10)
	}
	return significant, nil
}
