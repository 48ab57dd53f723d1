package condition

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func single(key, name string) Node { return Node{Kind: Single, Keys: []string{key}, Name: name} }

func count(n int, by Distinct, keys ...string) Node {
	return Node{Kind: Count, N: n, By: by, Keys: keys}
}

func nested(depth int) Node {
	if depth == 0 {
		return single("a", "x")
	}
	return Node{Kind: AllOf, Members: []Node{nested(depth - 1)}}
}

func TestCheckNamesTheMistake_I46(t *testing.T) {
	many := make([]Node, MaxNodes)
	for i := range many {
		many[i] = single("a", "x")
	}
	keys := make([]string, MaxKeys+1)
	for i := range keys {
		keys[i] = strings.Repeat("k", i+1)
	}
	for _, c := range []struct {
		name string
		node Node
		want string // "": fine
	}{
		{"nothing", Node{}, "is empty"},
		{"one signal", single("a", "x"), ""},
		{"any signal", single("a", ""), ""},
		{"no key", single("", "x"), "waitpoint key of 0 bytes"},
		{"the longest key", single(strings.Repeat("k", MaxKey), "x"), ""},
		{"a longer key", single(strings.Repeat("k", MaxKey+1), "x"), "waitpoint key of 513 bytes"},
		{"a reserved key", single("__timeout__", "x"), "reserved"},
		{"a key that is no text", single("a\x00", "x"), "U+0000"},
		{"the longest name", single("a", strings.Repeat("n", MaxName)), ""},
		{"a longer name", single("a", strings.Repeat("n", MaxName+1)), "signal name of 257 bytes"},
		{"a name that is no text", single("a", "\xff"), "not UTF-8"},
		{"a long predicate", Node{Kind: Single, Keys: []string{"a"}, Where: strings.Repeat("$", MaxPredicate+1)}, "predicate of 1025 bytes"},
		{"no members", Node{Kind: AllOf}, "no members"},
		{"one signal at two waitpoints", Node{Kind: Single, Keys: []string{"a", "b"}, Name: "x"}, "one signal at 2 waitpoints"},
		{"one signal at no waitpoint", Node{Kind: Single, Name: "x"}, "one signal at 0 waitpoints"},
		{"a waitpoint of all", Node{Kind: AllOf, Keys: []string{"a"}, Members: []Node{single("a", "x")}}, "no waitpoint of its own"},
		{"an operator inside", Node{Kind: AnyOf, Members: []Node{{Kind: OperatorOnly}}}, "OperatorOnly can't be a member"},
		{"a timeout inside", Node{Kind: AllOf, Members: []Node{{Kind: TimeoutOnly}}}, "TimeoutOnly can't be a member"},
		{"a mistake inside", Node{Kind: AllOf, Members: []Node{single("a", "x"), single("", "x")}}, "waitpoint key"},
		{"the deepest", nested(MaxDepth), ""},
		{"a deeper one", nested(MaxDepth + 1), "more than 4 deep"},
		{"too many parts", Node{Kind: AllOf, Members: many}, "more than 1024 parts"},
		{"none to count", count(1, Sources), "no waitpoint"},
		{"counting to nothing", count(0, Sources, "a"), "counts to 0"},
		{"counting by nothing", count(1, "", "a"), "none of the properties"},
		{"two sources at one waitpoint", count(2, Sources, "a"), ""},
		{"more waitpoints than there are", count(2, Waitpoints, "a", "a"), "counts to 2 of 1"},
		{"too many waitpoints", count(1, Waitpoints, keys...), "at 257 waitpoints"},
		{"an operator", Node{Kind: OperatorOnly}, ""},
	} {
		err := c.node.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// The stored forms are those of FlowFabric, and AnyOf.
func TestStoredForms(t *testing.T) {
	for _, c := range []struct {
		node   Node
		stored string
	}{
		{single("wpk:a", "ready"), `{"Single":{"waitpoint_key":"wpk:a","matcher":{"ByName":"ready"}}}`},
		{single("wpk:a", ""), `{"Single":{"waitpoint_key":"wpk:a","matcher":"Wildcard"}}`},
		{
			Node{Kind: Single, Keys: []string{"a"}, Name: "paid", Where: "$.amount > 100"},
			`{"Single":{"waitpoint_key":"a","matcher":{"ByName":"paid"},"predicate":"$.amount \u003e 100"}}`,
		},
		{Node{Kind: OperatorOnly}, `"OperatorOnly"`},
		{Node{Kind: TimeoutOnly}, `"TimeoutOnly"`},
		{
			Node{Kind: AllOf, Members: []Node{single("a", "x"), {Kind: AnyOf, Members: []Node{single("b", "y")}}}},
			`{"Composite":{"kind":"AllOf","members":[{"Single":{"waitpoint_key":"a","matcher":{"ByName":"x"}}},` +
				`{"Composite":{"kind":"AnyOf","members":[{"Single":{"waitpoint_key":"b","matcher":{"ByName":"y"}}}]}}]}}`,
		},
		{
			Node{Kind: Count, N: 2, By: Sources, Name: "x", Keys: []string{"wpk:a", "wpk:b"}},
			`{"Composite":{"kind":"Count","n":2,"count_kind":"DistinctSources","matcher":{"ByName":"x"},"waitpoints":["wpk:a","wpk:b"]}}`,
		},
		{count(1, Signals, "a"), `{"Composite":{"kind":"Count","n":1,"count_kind":"DistinctSignals","waitpoints":["a"]}}`},
	} {
		stored, err := json.Marshal(c.node)
		if err != nil || string(stored) != c.stored {
			t.Errorf("stored as %s, error %v; want %s", stored, err, c.stored)
		}
		var read Node
		if err := json.Unmarshal([]byte(c.stored), &read); err != nil || !reflect.DeepEqual(read, c.node) {
			t.Errorf("%s is read as %+v, error %v", c.stored, read, err)
		}
	}
}

func TestReadingIsLenientAboutKeysAlone(t *testing.T) {
	var n Node
	if err := json.Unmarshal([]byte(`{"Single":{"waitpoint_key":"a","matcher":"Wildcard","new":1},"more":2}`), &n); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal([]byte(`{"Composite":{"kind":"Count","n":1,"count_kind":"DistinctSources","matcher":null,"waitpoints":["a"]}}`), &n); err != nil || n.Name != "" {
		t.Errorf("%+v, %v", n, err)
	}
	for _, text := range []string{
		`"Never"`, `{}`, `[]`, `null`, `1`, `{"Single":{}}`, `{"Single":{"waitpoint_key":"a"}}`, `{"Single":{"waitpoint_key":"a","matcher":{"Regex":"x"}}}`,
		`{"Composite":{"kind":"OneOf","members":[]}}`, `{"Composite":{"kind":"AllOf","members":["Never"]}}`, `{"Composite":{"kind":"Count","n":"x"}}`,
		`{"Composite":{"kind":"Count","matcher":7}}`,
	} {
		if err := json.Unmarshal([]byte(text), &n); err == nil {
			t.Errorf("%s is read as %+v", text, n)
		}
	}
}

func TestWaitpointsAndTheirNames(t *testing.T) {
	got := Node{Kind: AllOf, Members: []Node{
		single("a", "x"), single("a", "y"), single("a", "x"), single("b", ""), single("b", "z"),
		{Kind: Count, N: 1, By: Sources, Name: "v", Keys: []string{"c", "a"}},
	}}.Waitpoints()
	want := []Waitpoint{{"a", []string{"x", "y", "v"}}, {"b", []string{}}, {"c", []string{"v"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	paths := Node{Kind: AnyOf, Members: []Node{{Kind: Single, Where: "$.a"}, {Kind: Single, Where: "$.b"}, {Kind: Single, Where: "$.a"}}}.Predicates()
	if !reflect.DeepEqual(paths, []string{"$.a", "$.b"}) {
		t.Error(paths)
	}
}
