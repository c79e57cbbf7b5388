package machine

// Position is the sequence that the last command that changed the run has in the
// log. Applied is that too, but goes on growing where the log does not.
func (s *State) Position() uint64 { return s.Applied - s.Shift }

// Rebase makes the run one that has folded nothing from a sequence of its log on.
// It is for a log that has lost its end, and gives the sequences that the run
// knows of to other commands. What the run counts in sequences goes on growing, so
// that none of its keys is used for two values.
func (s *State) Rebase(first uint64) {
	if first > 0 && first <= s.Position() {
		s.Shift = s.Applied - (first - 1)
	}
}
