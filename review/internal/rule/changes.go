package rule

// Rules about edits of released migrations, transactions, and comments that accept findings.
var (
	ReleasedMigrationChanged = add(Rule{
		Name: "released-migration-changed", Severities: []string{"blocking"},
		About: "the way up of a migration the base branch has is another one",
	})
	ReleasedMigrationRemoved = add(Rule{
		Name: "released-migration-removed", Severities: []string{"blocking"},
		About: "a migration the base branch has is gone",
	})
	ReleasedWayDownChanged = add(Rule{
		Name: "released-way-down-changed", Severities: []string{"advice"},
		About: "only its way down is another one",
	})
	MigrationVersionTwice = add(Rule{
		Name: "migration-version-twice", Severities: []string{"blocking"},
		About: "two files have one version, in the change or in it and the base branch",
	})
	MigrationOutOfOrder = add(Rule{
		Name: "migration-out-of-order", Severities: []string{"risk"},
		About: "a new version is lower than one that databases have",
	})
	OutsideTransaction = add(Rule{
		Name: "outside-transaction", Severities: []string{"blocking"},
		About: "a statement PostgreSQL refuses inside a transaction, in a migration that is one",
	})
	ConcurrentlyNotAlone = add(Rule{
		Name: "concurrently-not-alone", Severities: []string{"blocking"},
		About: "such a statement beside others: they are sent as one text, which is a transaction",
	})
	ConcurrentlyIfNotExists = add(Rule{
		Name: "concurrently-if-not-exists", Severities: []string{"advice"},
		About: "IF NOT EXISTS takes the invalid index of a failed build for a good one",
	})
	TransactionEndedEarly = add(Rule{
		Name: "transaction-ended-early", Severities: []string{"risk"},
		About: "COMMIT and the like in a migration that is one transaction",
	})
	TransactionLeftOpen = add(Rule{
		Name: "transaction-left-open", Severities: []string{"blocking"},
		About:  "BEGIN without COMMIT in a migration that is no transaction otherwise",
		Advice: "End the transaction with `COMMIT`, or leave out `BEGIN` and let the migration be one transaction.",
	})
	DatabaseDropped = add(Rule{
		Name: "database-dropped", Severities: []string{"blocking"},
		About:  "DROP DATABASE: everything in it is lost",
		Advice: "Take it out of the migrations: a database is dropped by hand, after a backup.",
	})
	DropCascade = add(Rule{
		Name: "drop-cascade", Severities: []string{"risk"},
		About: "the dropped objects are not named",
	})
	EnumValueRenamed = add(Rule{
		Name: "enum-value-renamed", Severities: []string{"blocking"},
		About: "old programs send and know the old name",
	})
	EnumValueUsedAtOnce = add(Rule{
		Name: "enum-value-used-at-once", Severities: []string{"blocking"},
		About: "a new value is used by the transaction that adds it",
	})
	SilenceUnreadable = add(Rule{
		Name: "silence-unreadable", Severities: []string{"risk"},
		About: `a comment "review: …" that silences nothing`,
	})
	SilenceExpired = add(Rule{
		Name: "silence-expired", Severities: []string{"risk"},
		About: "its day has passed, so it accepts nothing",
	})
	SilenceLong = add(Rule{
		Name: "silence-long", Severities: []string{"advice"},
		About: "its day is more than a year away",
	})
	SilenceUnused = add(Rule{
		Name: "silence-unused", Severities: []string{"advice"},
		About: "it matches no finding",
	})
)
