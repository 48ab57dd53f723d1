package project

// WithText returns a migration of the side with another text in dbmate's form. The parser's findings
// were reported for the text in the file.
func (s *Side) WithText(m Migration, text string) Migration {
	other := Side{Dir: s.Dir}
	changed, err := other.readMigration(m.Version, m.File, text)
	if err != nil {
		return m
	}
	changed.Tool, changed.Usable, changed.Irreversible = m.Tool, m.Usable, m.Irreversible
	return changed
}
