package upkeep

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/db"
)

// look is the state of one outbox as trimming reads it: the position of its sequence, then its writers.
type look struct {
	position int64
	writers  []db.ListOutboxesWritersRow
	final    int64 // the id up to which events may be trimmed then
}

func writer(name string) db.ListOutboxesWritersRow {
	return db.ListOutboxesWritersRow{Outbox: "lease", VirtualTransaction: name}
}

func preparedWriter(name string) db.ListOutboxesWritersRow {
	w := writer(name)
	w.Prepared = true
	return w
}

// An id is final once all transactions that may have taken it, or an earlier one, have ended.
func TestEventsAreFinalOnceTheirWritersEnded(t *testing.T) {
	type writers = []db.ListOutboxesWritersRow
	for _, c := range []struct {
		name  string
		looks []look
	}{
		{"without writers", []look{{10, nil, 10}, {20, nil, 20}}},
		{"a writer that was open before", []look{{10, nil, 10}, {20, writers{writer("3/1")}, 10}, {30, writers{writer("3/1")}, 10}, {40, nil, 40}}},
		{"a writer that began later", []look{{10, writers{writer("3/1")}, 0}, {20, writers{writer("4/1")}, 10}, {30, writers{writer("5/1")}, 20}}},
		// A prepared transaction has another name.
		{"a writer that was prepared between two looks", []look{
			{10, nil, 10}, {20, writers{writer("3/1")}, 10}, {20, writers{preparedWriter("-1/700")}, 10}, {30, nil, 30},
		}},
		{"a writer that was prepared before", []look{{10, writers{preparedWriter("-1/700")}, 0}, {10, writers{preparedWriter("-1/700")}, 0}, {10, nil, 10}}},
		// An id that is assigned again may belong to a new transaction.
		{"a sequence that stepped back below what was final", []look{{10, nil, 10}, {5, writers{writer("3/1")}, 0}, {6, nil, 6}}},
		{"a sequence that stepped back below what is awaited", []look{
			{10, nil, 10}, {20, writers{writer("3/1")}, 10}, {15, writers{writer("4/1")}, 0}, {16, writers{writer("4/1")}, 0}, {17, nil, 17},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var known finalities
			for i, l := range c.looks {
				begun := known.begin(map[string]int64{"lease": l.position}, map[string][]db.ListOutboxesWritersRow{"lease": l.writers})
				begun["lease"] = begun["lease"].settle(l.writers)
				if got := known.keep(begun)["lease"]; got != l.final {
					t.Fatalf("look %d: final up to %d, want %d", i, got, l.final)
				}
			}
		})
	}
}
