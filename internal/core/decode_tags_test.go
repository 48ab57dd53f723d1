package core

import (
	"maps"
	"testing"
)

func TestDecodeTagsLeavesOutWhatIsNoString(t *testing.T) {
	for document, want := range map[string]map[string]string{
		``:                               nil,
		`{}`:                             nil,
		`[]`:                             nil,
		`{"a": "b", "c": ""}`:            {"a": "b", "c": ""},
		`{"a": "b", "c": 1}`:             {"a": "b"},
		`{"a": "b", "c": null}`:          {"a": "b"},
		`{"a": "null", "c": {"d": "e"}}`: {"a": "null"},
	} {
		if got := DecodeTags([]byte(document)); !maps.Equal(got, want) {
			t.Errorf("%s has the tags %v, want %v", document, got, want)
		}
	}
}
