package bytea

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

func TestBytesReadBothFormsOfText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``: "", `\x`: "", `\x00ff5c`: "\x00\xff\\", `plain`: "plain", `a\\b`: `a\b`, `\000\377\134x`: "\x00\xff\\x", `\\x41`: `\x41`,
	} {
		var b Bytes
		if err := b.ScanText(pgtype.Text{String: text, Valid: true}); err != nil || !bytes.Equal(b, []byte(want)) || b == nil {
			t.Errorf("%q: got %q, %v", text, b, err)
		}
	}
	for _, text := range []string{`\`, `\1`, `\12`, `\400`, `\18a`, `a\`, `\x1`, `\xzz`} {
		if err := new(Bytes).ScanText(pgtype.Text{String: text, Valid: true}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	b := Bytes("before")
	if err := b.ScanText(pgtype.Text{}); err != nil || b != nil {
		t.Errorf("NULL as text: %q, %v", b, err)
	}
	b = Bytes("before")
	if err := b.ScanBytes(nil); err != nil || b != nil {
		t.Errorf("NULL: %q, %v", b, err)
	}
}
