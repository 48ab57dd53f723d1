package engine

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// The keys of unique work are stored, so they never change. Another implementation can check itself by these vectors: a key is
// the first half of the SHA-256 of "ffx_unique/1", a line feed, and the parts namespace, kind, lane, args and period, each as
// its length, a colon and its bytes, or a minus if the key does not have it.
func TestUniqueKeyVectors(t *testing.T) {
	t.Parallel()
	var keyer uniqueKeyer
	for _, v := range []struct {
		name    string
		unique  Unique
		payload string
		delayMs int64
		want    string
	}{
		{
			"kind alone",
			Unique{},
			`{"order":1}`, 0,
			"be7b9817305f395d1a813c327a9b572b8b4549ca1b4215041c310ee3aa939d06",
		},
		{
			"lane",
			Unique{ByLane: true},
			"", 0,
			"a20078e08be5e18cc8e2a4937ea8c1dc7c37a0054362c858363bc3fbe7e311b1",
		},
		{
			"args",
			Unique{ByArgs: true},
			`{"order":4711,"by":"ada"}`, 0,
			"b48a875da377a62d53bd7350c4fe9ffa7efadc22eac8cafea990d5f1205cf221",
		},
		{
			"args in another form",
			Unique{ByArgs: true},
			` { "by" : "\u0061da", "order": 4711.0 } `, 0,
			"b48a875da377a62d53bd7350c4fe9ffa7efadc22eac8cafea990d5f1205cf221",
		},
		{
			"other args",
			Unique{ByArgs: true},
			`{"order":4711,"by":"bob"}`, 0,
			"28bc6871326fd5d1b94b82decd3b08ac4aa6c6d696bfaec7cb6a4524ade007c9",
		},
		{
			"fields",
			Unique{Fields: []string{"order", "line"}},
			`{"order":4711,"line":null,"by":"ada"}`, 0,
			"914de5992d8af55edc9cc0d43e5a3fbcfd46c3915dd803b8b8adc1df3c470153",
		},
		{
			"fields in another order",
			Unique{ByArgs: true, Fields: []string{"line", "order"}},
			`{"by":"bob","line":null,"order":47.11e2}`, 0,
			"914de5992d8af55edc9cc0d43e5a3fbcfd46c3915dd803b8b8adc1df3c470153",
		},
		{
			"no JSON",
			Unique{ByArgs: true},
			"\x00\xff", 0,
			"e608b3b4c6842037b497a422d069d1435f9b1ab8d66b58089492b8cd59ef539e",
		},
		{
			"no payload",
			Unique{ByArgs: true},
			"", 0,
			"bb1b5ba5245af2fccab58baf0d9a6d9934a221aa4cbea2189ed6736e45614718",
		},
		{
			"large numbers",
			Unique{ByArgs: true},
			`[9007199254740993]`, 0,
			"24de869217f53b244054361c24f32abcd29921f44ed5a3e72755f9c3091cfa5b",
		},
		{
			"other large numbers",
			Unique{ByArgs: true},
			`[9007199254740992]`, 0,
			"36de0a0b15a226625d1eded254455174c77c434eabf80d0dd43bac16578c102a",
		},
		{
			"period",
			Unique{Period: time.Hour},
			"", 0,
			"1adcb5e80659674e0cc69e3657b401710da94d23e1582e9c0b9bbccc8e2087ee",
		},
		{
			"period with a delay",
			Unique{Period: time.Hour},
			"", 1_800_003_599_999,
			"1adcb5e80659674e0cc69e3657b401710da94d23e1582e9c0b9bbccc8e2087ee",
		},
		{
			"next period",
			Unique{Period: time.Hour},
			"", 1_800_003_600_000,
			"57b057c0b8456882111e1d51af5382df0082d170f9ce4bd1a70034441fc3d7d8",
		},
		{
			"all",
			Unique{ByLane: true, ByArgs: true, Period: time.Hour},
			`[true,"ä\n\u2028<\"",{"b":{},"a":[]},-0.0,1.50,4700]`, 0,
			"b48810278411bc2d14f4900df513eabe7115a83a7be1450257d7a3d364770eb6",
		},
	} {
		c := creation{namespace: "default", kind: "send", lane: "mail", payload: []byte(v.payload), delayUntilMs: v.delayMs}
		if err := keyer.setUnique(&c, &v.unique, 1_800_000_000_000); err != nil {
			t.Errorf("%s: %v", v.name, err)
			continue
		}
		if got := hex.EncodeToString(c.unique.key[:]); got != v.want[:32] {
			t.Errorf("%s: %s, want %s", v.name, got, v.want[:32])
		}
	}
}

// Equal numbers have one form, and others have others.
func TestCanonicalNumber(t *testing.T) {
	t.Parallel()
	for want, forms := range map[string][]string{
		"0":      {"0", "-0", "0.000", "0e9", "-0E-7"},
		"1":      {"1", "1.0", "10e-1", "0.001e+3"},
		"-15e-1": {"-1.5", "-15E-1", "-0.0015e3"},
		"47e2":   {"4700", "4.7e3", "47000e-1"},
		"1e400":  {"1e400", "10e399"},
	} {
		for _, form := range forms {
			if got, err := canonicalNumber(form); got != want || err != nil {
				t.Errorf("%s: %s, %v; want %s", form, got, err, want)
			}
		}
	}
	if got, err := canonicalNumber("1e99999999999"); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("a huge exponent: %s, %v", got, err)
	}
}

// Each mistake is refused with the field in the error.
func TestUniqueIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unique  Unique
		payload string
		field   string
		reason  string
	}{
		{Unique{While: "running"}, "{}", "Unique.While", "running"},
		{Unique{IfTaken: "wait"}, "{}", "Unique.IfTaken", "wait"},
		{Unique{IfTaken: ReplaceWaiting, While: WhileUnfinished}, "{}", "Unique.While", "ReplaceWaiting"},
		{Unique{Within: time.Second}, "{}", "Unique.Within", "ReplaceWaiting"},
		{Unique{IfTaken: ReplaceWaiting, Within: -time.Second}, "{}", "Unique.Within", "-1s"},
		{Unique{IfTaken: ReplaceWaiting, Within: time.Microsecond}, "{}", "Unique.Within", "whole milliseconds"},
		{Unique{Period: MinUniquePeriod - time.Millisecond}, "{}", "Unique.Period", "1s"},
		{Unique{Period: -time.Hour}, "{}", "Unique.Period", "1s"},
		{Unique{Period: time.Hour + time.Nanosecond}, "{}", "Unique.Period", "whole milliseconds"},
		{Unique{Fields: make([]string, MaxUniqueFields+1)}, "{}", "Unique.Fields", "limit 16"},
		{Unique{Fields: []string{""}}, "{}", "Unique.Fields", "empty"},
		{Unique{Fields: []string{"a", "a"}}, "{}", "Unique.Fields", "twice"},
		{Unique{Fields: []string{"\x00"}}, "{}", "Unique.Fields", ""},
		{Unique{Fields: []string{strings.Repeat("a", MaxUniqueField+1)}}, "{}", "Unique.Fields", "limit 255"},
		{Unique{Fields: []string{"a"}}, "{}", "Unique.Fields", `"a"`},
		{Unique{Fields: []string{"a"}}, "[1]", "Unique.Fields", "no JSON object"},
		{Unique{Fields: []string{"a"}}, "null", "Unique.Fields", "no JSON object"},
		{Unique{Fields: []string{"a"}}, `{"a":1} {}`, "Unique.Fields", "no JSON object"},
		{Unique{ByArgs: true}, `[1e99999999999]`, "payload", "exponent"},
	} {
		err := c.unique.check()
		if err == nil {
			spec := creation{payload: []byte(c.payload)}
			err = new(uniqueKeyer).setUnique(&spec, &c.unique, 0)
		}
		input, ok := errors.AsType[*fferr.InputError](err)
		if !ok || input.Field != c.field || !strings.Contains(input.Reason, c.reason) {
			t.Errorf("%+v: %v, want an error of %s with %q", c.unique, err, c.field, c.reason)
		}
	}
}

func BenchmarkUniqueKey(b *testing.B) {
	payload := []byte(`{"order":4711,"by":"ada","lines":[{"sku":"a-1","n":2},{"sku":"b-2","n":10}]}`)
	var keyer uniqueKeyer
	c, u := creation{namespace: "default", kind: "send", payload: payload}, &Unique{ByArgs: true}
	for b.Loop() {
		if err := keyer.setUnique(&c, u, 0); err != nil {
			b.Fatal(err)
		}
	}
}
