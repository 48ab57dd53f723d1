package document

// UnmarshalJSON reads a timeout policy strictly and fills in the defaults.
//
// Errors: [*DecodeError].
func (t *Timeout) UnmarshalJSON(document []byte) error {
	o := openObject(document)
	p := Timeout{
		AttemptTimeoutMs:    ifPresent("attempt_timeout_ms", o.optional("attempt_timeout_ms"), o.uint64),
		ExecutionDeadlineMs: ifPresent("execution_deadline_ms", o.optional("execution_deadline_ms"), o.uint64),
		MaxReclaimCount:     ifPresent("max_reclaim_count", o.defaulted("max_reclaim_count"), o.uint32),
	}
	if o.err != nil {
		return o.err
	}
	*t = p.withDefaults()
	return nil
}

// UnmarshalJSON reads a suspension policy strictly and fills in the defaults.
//
// Errors: [*DecodeError].
func (s *Suspension) UnmarshalJSON(document []byte) error {
	o := openObject(document)
	p := Suspension{
		DefaultTimeoutMs: ifPresent("default_timeout_ms", o.optional("default_timeout_ms"), o.uint64),
		TimeoutBehavior: SuspensionBehavior(orDefault("timeout_behavior", o.defaulted("timeout_behavior"), o.text,
			string(SuspensionFail))),
	}
	if !p.TimeoutBehavior.valid() {
		o.fail("timeout_behavior", "unknown value")
	}
	if o.err != nil {
		return o.err
	}
	*s = p
	return nil
}

// UnmarshalJSON reads a fallback policy strictly; tiers is required.
//
// Errors: [*DecodeError].
func (f *Fallback) UnmarshalJSON(document []byte) error {
	o := openObject(document)
	p := Fallback{Tiers: []Tier{}}
	for _, raw := range o.array("tiers", o.required("tiers")) {
		var tier Tier
		o.nested("tiers", raw, &tier)
		p.Tiers = append(p.Tiers, tier)
	}
	if o.err != nil {
		return o.err
	}
	*f = p
	return nil
}

// UnmarshalJSON reads a tier strictly; provider and model are required.
//
// Errors: [*DecodeError].
func (t *Tier) UnmarshalJSON(document []byte) error {
	o := openObject(document)
	p := Tier{
		Provider:  o.text("provider", o.required("provider")),
		Model:     o.text("model", o.required("model")),
		TimeoutMs: ifPresent("timeout_ms", o.optional("timeout_ms"), o.uint64),
	}
	if o.err != nil {
		return o.err
	}
	*t = p
	return nil
}

// UnmarshalJSON reads routing requirements strictly; the capabilities come out sorted and
// distinct, unchecked.
//
// Errors: [*DecodeError].
func (r *Routing) UnmarshalJSON(document []byte) error {
	o := openObject(document)
	p := Routing{
		RequiredCapabilities: o.texts("required_capabilities", o.defaulted("required_capabilities")),
		PreferredLocality:    ifPresent("preferred_locality", o.optional("preferred_locality"), o.text),
		IsolationLevel:       ifPresent("isolation_level", o.optional("isolation_level"), o.text),
	}
	if o.err != nil {
		return o.err
	}
	*r = p.withDefaults()
	return nil
}

// UnmarshalJSON reads a stream policy strictly and fills in the defaults.
//
// Errors: [*DecodeError].
func (s *Stream) UnmarshalJSON(document []byte) error {
	o := openObject(document)
	p := Stream{
		DurabilityMode: DurabilityMode(orDefault("durability_mode", o.defaulted("durability_mode"), o.text,
			string(StreamBuffered))),
		RetentionMaxLen: ifPresent("retention_maxlen", o.defaulted("retention_maxlen"), o.uint64),
		RetentionTTLMs:  ifPresent("retention_ttl_ms", o.optional("retention_ttl_ms"), o.uint64),
	}
	if !p.DurabilityMode.valid() {
		o.fail("durability_mode", "unknown value")
	}
	if o.err != nil {
		return o.err
	}
	*s = p.withDefaults()
	return nil
}
