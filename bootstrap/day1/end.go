package day1

import (
	"time"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
)

// End marks a state directory as handed over and removes the passwords of the registry's accounts. The mark comes
// first: a process that finds it removes the accounts. instead is that of handover.Mark.
func End(stateDir, registry, instead string) error {
	m := handover.Mark{Time: time.Now().UTC(), Registry: registry, Instead: instead}
	if err := m.Write(stateDir); err != nil {
		return err
	}
	return removeAccounts(stateDir)
}

// Ended reads the mark of a state directory, nil where nothing has been handed over, and finishes what a process left
// that was killed after it had written the mark: it removes the accounts' passwords and ends the hand-over's phase.
func Ended(stateDir, phase string) (*handover.Mark, error) {
	mark, err := handover.ReadMark(stateDir)
	if err != nil || mark == nil {
		return nil, err
	}
	if err := removeAccounts(stateDir); err != nil {
		return mark, err
	}
	j, err := journal.Open(stateDir)
	if err != nil {
		return mark, err
	}
	r := j.Find(phase)
	if r == nil || r.Status != journal.StatusRunning {
		return mark, nil
	}
	r.Status, r.Finished, r.Interruptions, r.Interrupted = journal.StatusDone, mark.Time, r.Interruptions+1, time.Now()
	return mark, j.Save()
}
