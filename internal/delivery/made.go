package delivery

import "github.com/droverhq/drover"

// maxMade is of how many attempts it is remembered how they went.
const maxMade = 1 << 13

// made remembers how the latest attempts went, until their runs have heard of it
// and for long after: what a record that is not that far has for a job, and the
// list for another one, is not made again under the same number, but told again.
type made struct {
	of    map[drover.DeliveryID]madeAttempt
	order []drover.DeliveryID // a ring of maxMade
	next  int                 // the oldest, once it is full
}

type madeAttempt struct {
	token   string
	number  int
	verdict verdict
}

// note remembers an attempt. One that found nobody is none.
func (m *made) note(j *Job, v verdict) {
	if v.err != nil && v.unmade {
		return
	}
	if v.err != nil {
		v.err = clip(v.err)
	}
	v.receipt = cut(v.receipt, maxReceipt)
	if m.of == nil {
		m.of = map[drover.DeliveryID]madeAttempt{}
	}
	if _, known := m.of[j.ID]; !known {
		if len(m.order) < maxMade {
			m.order = append(m.order, j.ID)
		} else {
			delete(m.of, m.order[m.next])
			m.order[m.next] = j.ID
			m.next = (m.next + 1) % maxMade
		}
	}
	m.of[j.ID] = madeAttempt{j.Token, j.Attempt, v}
}

// was gives how an attempt went that was made already: the delivery has its
// receipt, or has failed under this number. A run that was begun anew with the
// same id has another token.
func (m *made) was(j *Job) (verdict, bool) {
	a, ok := m.of[j.ID]
	return a.verdict, ok && a.token == j.Token && (a.verdict.err == nil || j.Attempt <= a.number)
}

// again tells how an attempt went that is not to be made again.
func (d *Deliverer) again(j *Job) bool {
	v, made := d.made.was(j)
	if made && d.known[j.ID] == nil {
		d.hear(j, v)
	}
	return made
}
