package main

import (
	"slices"
	"strings"
	"testing"
)

func TestFailuresIn(t *testing.T) {
	t.Parallel()
	const events = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Test":"TestB/part"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"q","Test":"TestB"}
{"Action":"fail","Package":"p"}
`
	got, err := failuresIn(strings.NewReader(events))
	if want := []failure{{"p", "TestB"}, {"q", "TestB"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if _, err := failuresIn(strings.NewReader("no event")); err == nil {
		t.Error("a file without events is taken for one without failures")
	}
}

func TestChangedLines(t *testing.T) {
	t.Parallel()
	got := changedLines(`diff --git a/tests/a_test.go b/tests/a_test.go
--- a/tests/a_test.go
+++ b/tests/a_test.go
@@ -3,2 +3,4 @@ func TestA(t *testing.T) {
+one
@@ -20,2 +22,0 @@ func TestB(t *testing.T) {
-two
@@ -30 +30 @@
+three
diff --git a/tests/gone_test.go b/tests/gone_test.go
--- a/tests/gone_test.go
+++ /dev/null
@@ -1,2 +0,0 @@
-four
`)
	want := []span{{3, 6}, {22, 23}, {30, 30}}
	if len(got) != 1 || !slices.Equal(got["tests/a_test.go"], want) {
		t.Errorf("got %v, want %v of one file", got, want)
	}
}

func TestTestsAt(t *testing.T) {
	t.Parallel()
	const source = `package p

import "testing"

func TestA(t *testing.T) {
	t.Log()
}

func TestB(t *testing.T) { help() }

func help() {}

func Testify() {}
`
	for _, c := range []struct {
		name  string
		lines span
		want  []string
	}{
		{"an import", span{3, 3}, nil},
		{"inside a test", span{6, 6}, []string{"TestA"}},
		{"between tests", span{8, 8}, nil},
		{"two tests", span{7, 9}, []string{"TestA", "TestB"}},
		{"what tests may use", span{11, 11}, []string{"TestA", "TestB"}},
		{"no test by its name", span{13, 13}, []string{"TestA", "TestB"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got, err := testsAt([]byte(source), []span{c.lines}); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v; want %v", got, err, c.want)
			}
		})
	}
}
