// Package pgquery calls PostgreSQL's own parser. It remembers results, since the parts of a review parse the same texts,
// and calls the parser from one goroutine at a time: each further one would compile the parser's program again, which
// takes two seconds of a core.
package pgquery

import (
	"sync"

	tree "github.com/pganalyze/pg_query_go/v6"
	pgquery "github.com/wasilibs/go-pgquery"
	"github.com/wasilibs/go-pgquery/parser"
	"google.golang.org/protobuf/proto"
)

// Parse returns the tree of a text of statements. The caller may change it.
func Parse(text string) (*tree.ParseResult, error) {
	encoded, err := parsed.of(text, parser.ParseToProtobuf)
	if err != nil {
		return nil, err
	}
	result := new(tree.ParseResult)
	return result, proto.Unmarshal(encoded, result)
}

// ParseToJSON returns the tree of a text of statements in the parser's JSON form.
func ParseToJSON(text string) (string, error) {
	document, err := documents.of(text, func(text string) ([]byte, error) {
		document, err := parser.ParseToJSON(text)
		return []byte(document), err
	})
	return string(document), err
}

// Scan returns the tokens of a text. The caller may change them.
func Scan(text string) (*tree.ScanResult, error) {
	encoded, err := scanned.of(text, parser.ScanToProtobuf)
	if err != nil {
		return nil, err
	}
	result := new(tree.ScanResult)
	return result, proto.Unmarshal(encoded, result)
}

// Deparse returns the text of a tree.
func Deparse(of *tree.ParseResult) (string, error) {
	calling.Lock()
	defer calling.Unlock()
	return pgquery.Deparse(of)
}

// Prepare compiles the parser's program, so the first call need not.
func Prepare() { _, _ = Scan("") }

var calling sync.Mutex // held while the parser runs

var parsed, documents, scanned memory

// mostRemembered is how many bytes of texts and results are kept.
const mostRemembered = 64 << 20

// memory has results by text.
type memory struct {
	mu    sync.Mutex
	known map[string]result
	size  int
}

type result struct {
	encoded []byte
	err     error
}

func (m *memory) of(text string, call func(string) ([]byte, error)) ([]byte, error) {
	if r, ok := m.get(text); ok {
		return r.encoded, r.err
	}
	calling.Lock()
	defer calling.Unlock()
	if r, ok := m.get(text); ok { // another goroutine was faster
		return r.encoded, r.err
	}
	encoded, err := call(text)
	m.put(text, result{encoded, err})
	return encoded, err
}

func (m *memory) get(text string) (result, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.known[text]
	return r, ok
}

func (m *memory) put(text string, r result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := len(text) + len(r.encoded)
	if m.known == nil || m.size+size > mostRemembered {
		m.known, m.size = make(map[string]result), 0
	}
	m.known[text] = r
	m.size += size
}
