package rule

// Rules about files and schemas that cannot be read or made.
var (
	DumpStale = add(Rule{
		Name: "dump-stale", Severities: []string{"risk"},
		About: "the committed dump differs from the migrations",
	})
	DumpUnloadable = add(Rule{
		Name: "dump-unloadable", Severities: []string{"risk"},
		About: "the committed dump cannot be loaded",
	})
	ReviewIncomplete = add(Rule{
		Name: "review-incomplete", Severities: []string{"risk"},
		About: "a part of the review could not run; the others did",
	})
	MigrationFails = add(Rule{
		Name: "migration-fails", Severities: []string{"blocking"},
		About: "an empty database refuses a migration",
	})
	HistoryDiffers = add(Rule{
		Name: "history-differs", Severities: []string{"blocking"},
		About: "a new database is another one than a database that is migrated",
	})
	MigrationUnreadable = add(Rule{
		Name: "migration-unreadable", Severities: []string{"blocking", "note"},
		About: "the migration tool or the parser cannot read it",
	})
	QueryUnreadable = add(Rule{
		Name: "query-unreadable", Severities: []string{"blocking", "note"},
		About: "the parser does not read a query",
	})
	PathOutside = add(Rule{
		Name: "path-outside", Severities: []string{"blocking", "note"},
		About:  "a path of sqlc's configuration leads out of the project, and is not read",
		Advice: "Name a path inside the project.",
	})
	StatementRefused = add(Rule{
		Name: "statement-refused", Severities: []string{"blocking", "note"},
		About: "a statement that runs a program, accesses a file, or reaches other databases and servers: the review does not run it",
	})
	StatementNotRun = add(Rule{
		Name: "statement-not-run", Severities: []string{"risk", "note"},
		About: "a statement about a role or another object outside the database, COPY … FROM STDIN, or a change to an extension the review made: the review leaves it out",
	})
)
