package trust

import "testing"

func TestExpressionTakesOneExpression(t *testing.T) {
	for sql, want := range map[string]string{
		"i % 7": "",
		"(SELECT name FROM item ORDER BY 1 LIMIT 1)": "",
		"now() -\n  i * interval '1 day'":            "",
		"'a); DROP TABLE item; --'":                  "",
		"1); DROP TABLE item; SELECT (1":             "it is more than one expression",
		"1), (2":                                     "it is more than one expression",
		"1) FROM item WHERE (true":                   "it is more than one expression",
		"1) UNION SELECT (2":                         "it is more than one expression",
		"1)::text\x00":                               "it is more than one expression",
		"pg_read_file('/etc/passwd')":                "the expression calls pg_read_file, which reaches files, other servers or the server itself",
		"set_config('role', 'postgres', false)":      "the expression changes the role of the session",
	} {
		var got string
		if err := Expression(sql); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", sql, got, want)
		}
	}
	for _, sql := range []string{"", "1 --", "1 /*", "1; SELECT 2"} {
		if Expression(sql) == nil {
			t.Errorf("%q is an expression", sql)
		}
	}
}
