package rule

// Rules about the way back.
var (
	DownFails = add(Rule{
		Name: "down-fails", Severities: []string{"blocking"},
		About: "the way back is refused",
	})
	DownMissing = add(Rule{
		Name: "down-missing", Severities: []string{"risk"},
		About: "a migration that changes something has no statement down, and gives no reason",
	})
	DownDiffers = add(Rule{
		Name: "down-differs", Severities: []string{"risk"},
		About: "the way back does not lead to the schema before",
	})
	UpAgainFails = add(Rule{
		Name: "up-again-fails", Severities: []string{"blocking"},
		About: "after the way back the migrations cannot be applied any more",
	})
	UpAgainDiffers = add(Rule{
		Name: "up-again-differs", Severities: []string{"risk"},
		About: "applied again they make another schema",
	})
	RowsDoNotSurvive = add(Rule{
		Name: "rows-do-not-survive", Severities: []string{"blocking"},
		About: "rows, or the values of a column, that were there before are lost up or down",
	})
	RowsLostByDecision = add(Rule{
		Name: "rows-lost-by-decision", Severities: []string{"note"},
		About: "the same of a migration that gives its reason for having no way back",
	})
	Irreversible = add(Rule{
		Name: "irreversible", Severities: []string{"note"},
		About: "a migration that is not taken back, with its reason",
	})
)
