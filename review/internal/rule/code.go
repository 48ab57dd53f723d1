package rule

// Rules about the generated package.
var (
	GenerateFails = add(Rule{
		Name: "generate-fails", Severities: []string{"blocking", "note"},
		About: "sqlc refuses the queries on the schema of the change; a note if it refused them before, too",
	})
	GeneratedCodeStale = add(Rule{
		Name: "generated-code-stale", Severities: []string{"risk"},
		About: "the committed package differs from sqlc's",
	})
	APIRemoved = add(Rule{
		Name: "api-removed", Severities: []string{"risk", "note"},
		About: "a function, type or field is gone: programs that use it do not compile. A note if it is gone with its query, or if no query used it",
	})
	APIChanged = add(Rule{
		Name: "api-changed", Severities: []string{"risk"},
		About: "its type is another one",
	})
	APINullability = add(Rule{
		Name: "api-nullability", Severities: []string{"risk"},
		About: "its type is another one, because the value may now be NULL, or no longer",
	})
)
