package main

import (
	"bytes"
	"os"
	"testing"
)

func TestFilesAreGenerated(t *testing.T) {
	board, err := Board()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{"../../grafana/flowfabric.json": board, "../../alerts/flowfabric.yaml": Alerts()} {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what go generate ./ffotel writes (%v)", path, err)
		}
	}
}
