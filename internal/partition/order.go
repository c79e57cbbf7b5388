package partition

// order is the commands that are not done, in the order of the log. It is a
// list, so that one that is not done for long costs no memory for those after
// it that are.
type order struct{ first, last *item }

func (o *order) add(it *item) {
	it.before = o.last
	if o.last == nil {
		o.first = it
	} else {
		o.last.after = it
	}
	o.last = it
}

func (o *order) remove(it *item) {
	if it.before == nil {
		o.first = it.after
	} else {
		it.before.after = it.after
	}
	if it.after == nil {
		o.last = it.before
	} else {
		it.after.before = it.before
	}
	it.before, it.after = nil, nil
}
