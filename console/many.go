package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/operator"
)

// maxPages is the number of pages of the filter that one request changes, so that it ends. The page offers to continue.
const maxPages = 20

// manyPage is the data of the page that counts, and after a change shows the result.
type manyPage struct {
	Form     url.Values
	Words    string // the filter in words
	Progress operator.BulkProgress
	Action   Action // done; "": only counted
	Refused  bool   // the filter selects everything
	Examined int    // the oldest executions that were counted, if there are others
	Further  string // the query of a longer count
}

// Number returns the count in words.
func (p *manyPage) Number() string {
	if p.Progress.Next != "" || p.Action != "" {
		return "them"
	}
	return strconv.Itoa(p.Progress.Matched)
}

// Same returns the query of the filter.
func (p *manyPage) Same() string { return p.Form.Encode() }

// many counts the executions a filter matches, before a change of all.
func (c *console) many(r *request) (view, error) {
	return c.changeMany(r, "", func(ctx context.Context, filter engine.ExecutionFilter, bulk operator.Bulk) (operator.BulkProgress, error) {
		bulk.DryRun = true
		return operator.CancelWhere(ctx, c.eng, filter, "", bulk)
	})
}

func (c *console) cancelMany(r *request) (view, error) {
	return c.changeMany(r, CancelMany, func(ctx context.Context, filter engine.ExecutionFilter, bulk operator.Bulk) (operator.BulkProgress, error) {
		return operator.CancelWhere(ctx, c.eng, filter, r.text("reason"), bulk)
	})
}

func (c *console) retryMany(r *request) (view, error) {
	return c.changeMany(r, RetryMany, func(ctx context.Context, filter engine.ExecutionFilter, bulk operator.Bulk) (operator.BulkProgress, error) {
		return operator.ReplayWhere(ctx, c.eng, filter, bulk)
	})
}

func (c *console) prioritizeMany(r *request) (view, error) {
	priority, err := r.number("priority")
	if err != nil {
		return view{}, err
	}
	return c.changeMany(r, PrioritizeMany, func(ctx context.Context, filter engine.ExecutionFilter, bulk operator.Bulk) (operator.BulkProgress, error) {
		return operator.PrioritizeWhere(ctx, c.eng, filter, priority, bulk)
	})
}

func (c *console) moveMany(r *request) (view, error) {
	to, err := r.lane("to")
	if err != nil {
		return view{}, err
	}
	return c.changeMany(r, MoveMany, func(ctx context.Context, filter engine.ExecutionFilter, bulk operator.Bulk) (operator.BulkProgress, error) {
		return operator.MoveWhere(ctx, c.eng, filter, to, bulk)
	})
}

// errEnough ends a request of many executions.
var errEnough = errors.New("enough for one request")

// changeMany runs an operation on up to maxMany executions of a filter. The log has an entry from before the change, since the
// change is several transactions, and one with its numbers.
func (c *console) changeMany(
	r *request, action Action, run func(context.Context, engine.ExecutionFilter, operator.Bulk) (operator.BulkProgress, error),
) (view, error) {
	filter, form, err := r.filter()
	if err != nil {
		return view{}, err
	}
	data := manyPage{Form: form, Words: wordsOf(form), Action: action, Refused: len(form) == 0}
	v := view{template: "many.html", title: "Change many", data: &data}
	if data.Refused {
		return v, nil
	}
	if err := c.record(r, action, data.Words, "begins"); err != nil {
		return view{}, err
	}
	filter.Order = engine.OldestFirst
	bulk, pages, most := operator.Bulk{After: r.FormValue("after"), Batch: engine.MaxBatch}, 0, maxPages
	if action == "" {
		most, filter.Examined = 1, r.examined()
	}
	bulk.Progress = func(p operator.BulkProgress) error {
		data.Progress = p
		if pages++; p.Next != "" && pages == most {
			return errEnough
		}
		return nil
	}
	data.Progress, err = run(r.Context(), filter, bulk)
	if err != nil && !errors.Is(err, errEnough) {
		return view{}, err
	}
	p := data.Progress
	if action == "" && p.Next != "" {
		data.Examined = filter.Examined
		if filter.Examined < engine.MaxExamined {
			data.Further = with(form, "further", "yes")
		}
	}
	return v, c.record(r, action, data.Words, fmt.Sprintf("%d changed, %d refused, %d busy", p.Changed, p.Refused, p.Busy))
}

// record writes an entry of a change in several transactions. A count has none.
func (c *console) record(r *request, action Action, object, detail string) error {
	if action == "" {
		return nil
	}
	return operator.RecordAction(r.Context(), c.eng, operator.Action{By: r.access.Name, Name: string(action), Object: object, Detail: detail})
}

// wordsOf returns the fields of a filter for people.
func wordsOf(form url.Values) string {
	var words []string
	for _, field := range filterFields {
		if form.Has(field) {
			words = append(words, field+"="+form.Get(field))
		}
	}
	return strings.Join(words, " ")
}
