package rule

// Rules about old and new programs side by side.
var (
	RollingNoOrder = add(Rule{
		Name: "rolling-no-order", Severities: []string{"blocking"},
		About: "old programs fail on the new schema, and new ones on the old",
	})
	RollingCodeFirst = add(Rule{
		Name: "rolling-code-first", Severities: []string{"risk"},
		About: "old programs fail on the new schema; the migration waits until none runs",
	})
	RollingSchemaFirst = add(Rule{
		Name: "rolling-schema-first", Severities: []string{"note"},
		About: "new programs need the new schema",
	})
	RollingDeclaration = add(Rule{
		Name: "rolling-declaration", Severities: []string{"blocking", "advice"},
		About: "a migration declares itself usable for programs that fail on it (blocking), or excludes programs that don't (advice), or declares nothing although earlier ones do (advice)",
	})
	RollingNull = add(Rule{
		Name: "rolling-null", Severities: []string{"risk"},
		About: "old programs read a column that may now be NULL",
	})
	RollingNullSent = add(Rule{
		Name: "rolling-null-sent", Severities: []string{"risk"},
		About:  "old programs may send NULL for a column that no longer takes it",
		Advice: "Let the programs send a value first, everywhere; then make the column stricter.",
	})
	RollingCachedPlan = add(Rule{
		Name: "rolling-cached-plan", Severities: []string{"advice"},
		About: "the types of a query's results change, so its prepared statement fails once in each session that has it",
	})
)
