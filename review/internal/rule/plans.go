package rule

// Rules about plans and indexes.
var (
	SequentialScan = add(Rule{
		Name: "sequential-scan", Severities: []string{"blocking", "risk", "advice", "note"},
		About: "a table counted as large is read whole. Blocking for generic and custom plan alike, a risk for the generic one alone, advice for the custom one alone. Going through a whole index for a condition the index does not hold counts too, as a risk at most, since a LIMIT may end it",
	})
	LargeSort = add(Rule{
		Name: "large-sort", Severities: []string{"blocking", "risk", "advice", "note"},
		About: "as many rows as a large table has are sorted. Severities as for sequential-scan",
	})
	IndexUnused = add(Rule{
		Name: "index-unused", Severities: []string{"advice", "note"},
		About: "no query uses the index, and it enforces nothing and serves no foreign key",
	})
	IndexRedundant = add(Rule{
		Name: "index-redundant", Severities: []string{"advice", "note"},
		About: "another index serves the same queries",
	})
	UpdateNotHeapOnly = add(Rule{
		Name: "update-not-heap-only", Severities: []string{"risk"},
		About: "a query's updates were heap-only and no longer are",
	})
	QueryFails = add(Rule{
		Name: "query-fails", Severities: []string{"blocking"},
		About:  "a query of the change fails on the change's own schema, whatever its arguments are",
		Advice: "Change the query together with the schema: let it fill the required columns, and name what exists.",
	})
	QueryNotPlanned = add(Rule{
		Name: "query-not-planned", Severities: []string{"blocking"},
		About: "the server refuses to plan the query, which it did before",
	})
)
