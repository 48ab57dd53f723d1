package rule

// Rules about the effects of statements on a database with rows.
var (
	LockBlocksReaders = add(Rule{
		Name: "lock-blocks-readers", Severities: []string{"blocking"},
		About: "ACCESS EXCLUSIVE was held while rows were read, written or copied: all programs wait",
	})
	LockBlocksWriters = add(Rule{
		Name: "lock-blocks-writers", Severities: []string{"blocking"},
		About: "SHARE or stronger was held in the same way: writers wait",
	})
	LockHeldWhileSlow = add(Rule{
		Name: "lock-held-while-slow", Severities: []string{"blocking"},
		About: "the same, but the lock is from an earlier statement of the transaction",
	})
	WritesEveryRow = add(Rule{
		Name: "writes-every-row", Severities: []string{"blocking"},
		About: "one statement changed most rows of a table: their writers wait until it commits",
	})
	TriggerWaits = add(Rule{
		Name: "trigger-waits", Severities: []string{"blocking", "risk"},
		About: "two writers of different rows wait for each other, by a new trigger",
	})
	UniqueOverDuplicates = add(Rule{
		Name: "unique-over-duplicates", Severities: []string{"risk", "note"},
		About:  "a new unique index or constraint on a table with rows, which may have duplicates; a note if it is built concurrently",
		Advice: "Count the duplicates in production first: `SELECT columns, count(*) … GROUP BY columns HAVING count(*) > 1`. Remove them in an earlier migration.",
	})
	ForeignKeyDropped = add(Rule{
		Name: "foreign-key-dropped", Severities: []string{"risk"},
		About:  "a foreign key is dropped, and no other one takes its place",
		Advice: "Keep it, or say why rows without a counterpart are harmless. If only its definition changes, add the new one `NOT VALID` first.",
	})
	RowSecurityHidesRows = add(Rule{
		Name: "row-security-hides-rows", Severities: []string{"risk"},
		About:  "row security is switched on or a policy is dropped: programs no longer see rows they saw",
		Advice: "Create the policies in a migration before, for each role that programs use, and try the queries as these roles.",
	})
	FailsOnRows = add(Rule{
		Name: "fails-on-rows", Severities: []string{"risk", "blocking"},
		About: "the rows of the seed refuse the statement; blocking if every row would, as for a new column that is NOT NULL without a default",
	})
	MigrationFailsOnRows = add(Rule{
		Name: "migration-fails-on-rows", Severities: []string{"blocking"},
		About: "a migration an empty database takes is refused by one with rows",
	})
)
