package console

import (
	"net/url"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/schema"
)

// workersPage is the data of the page of workers.
type workersPage struct {
	Lane    id.LaneID
	Workers []engine.RegisteredWorker
	Next    string // the query of the next page
}

// workers lists registered workers.
func (c *console) workers(r *request) (view, error) {
	form := r.fields("lane")
	filter := engine.WorkerFilter{Lane: id.LaneID(form.Get("lane"))}
	page, err := c.eng.ListWorkers(r.Context(), filter, r.FormValue("after"), pageSize)
	if err != nil {
		return view{}, err
	}
	data := workersPage{Lane: filter.Lane, Next: with(form, "after", page.Next)}
	for _, w := range page.Items {
		if r.access.Lanes == nil || serves(&r.access, w.Lanes) {
			data.Workers = append(data.Workers, w)
		}
	}
	return view{template: "workers.html", title: "Workers", data: &data}, nil
}

// serves reports whether a worker serves no other lanes than the person sees.
func serves(a *Access, lanes []id.LaneID) bool {
	for _, lane := range lanes {
		if !a.seesLane(lane) {
			return false
		}
	}
	return true
}

// healthPage is the data of the page of health.
type healthPage struct {
	Jobs      []operator.BackgroundJob
	Retention operator.RetentionStatus
	Consumers []events.ConsumerStatus
	Keys      []operator.SigningKey
}

// health reads the background jobs, the progress of retention and the consumers of events.
func (c *console) health(r *request) (view, error) {
	var data healthPage
	var err error
	if data.Jobs, _, err = take(operator.Jobs(r.Context(), c.eng), func(operator.BackgroundJob) bool { return true }); err != nil {
		return view{}, err
	}
	if data.Retention, err = operator.Retention(r.Context(), c.eng); err != nil {
		return view{}, err
	}
	if data.Consumers, err = events.Consumers(r.Context(), c.eng); err != nil {
		return view{}, err
	}
	return view{template: "health.html", title: "Health", data: &data}, nil
}

// databasePage is the data of the page of the database.
type databasePage struct {
	operator.DatabaseStatus
	Schema schema.State
}

// database reads the migrations, dead rows and old snapshots.
func (c *console) database(r *request) (view, error) {
	var data databasePage
	var err error
	if data.DatabaseStatus, err = operator.Database(r.Context(), c.eng); err != nil {
		return view{}, err
	}
	if data.Schema, err = c.migrations(r.Context()); err != nil {
		return view{}, err
	}
	return view{template: "database.html", title: "Database", data: &data}, nil
}

// logPage is the data of the page of the operators' log.
type logPage struct {
	Form    url.Values
	Entries []operator.LogEntry
	Next    string // the query of the next page
}

// log lists the acts of operators, the newest first.
func (c *console) log(r *request) (view, error) {
	page, err := operator.ListLog(r.Context(), c.eng, operator.LogFilter{}, r.FormValue("after"), pageSize)
	if err != nil {
		return view{}, err
	}
	return view{template: "log.html", title: "Operators' log", data: &logPage{nil, page.Items, with(url.Values{}, "after", page.Next)}}, nil
}
